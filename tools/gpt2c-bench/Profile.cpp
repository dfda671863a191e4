#include "tools/gpt2c-bench/Profile.h"

#include "runtime/plan/FunctionNames.h"
#include "tools/runtime-common/Report.h"

#include <algorithm>

namespace gpt2c {

static StepRow describe(const plan::PlanT &meta, const rt::FunctionProfile &measured,
                        const rt::FunctionProfile::StepTime &time, double pastTokens,
                        const Peak &peak) {
  const plan::StepT &step = *measured.function->steps[time.step];
  StepRow row;
  row.op = step.op;
  row.kernel = meta.kernels[step.kernel]->name;
  for (const std::string &node : step.nodes)
    row.nodes += (row.nodes.empty() ? "" : " ") + node;
  for (const auto &size : step.grid)
    row.grid +=
        (row.grid.empty() ? "" : " x ") + std::to_string(int64_t(valueOf(size, measured.symbols)));
  row.begin = time.begin;
  row.time = time.end - time.begin;
  auto cost = [&](const auto &own, const auto &past) {
    return valueOf(own, measured.symbols) + pastTokens * valueOf(past, measured.symbols);
  };
  row.bytes = cost(step.bytes, step.past_bytes);
  row.flops = cost(step.flops, step.past_flops);
  if (peak.bytesPerSecond > 0)
    row.floor = row.bytes / peak.bytesPerSecond * 1e3;
  if (peak.flopsPerSecond > 0)
    row.floor = std::max(row.floor, row.flops / peak.flopsPerSecond * 1e3);
  return row;
}

std::vector<StepRow> stepRows(const plan::PlanT &meta, const rt::FunctionProfile &measured,
                              double pastTokens, const Peak &peak) {
  std::vector<StepRow> rows;
  for (const auto &time : measured.steps)
    rows.push_back(describe(meta, measured, time, pastTokens, peak));
  return rows;
}

std::string Profile::title() const {
  return std::string(kind) + " " +
         (call.empty() ? "batch " + std::to_string(batch) + " tokens " + std::to_string(tokens)
                       : call);
}

static rt::Result<rt::FunctionProfile> measureSteps(rt::Session &session, std::string_view kind,
                                                    int batch, int tokens, int past,
                                                    int repetitions) {
  if (kind == rt::functions::forward) {
    auto inputs = randomInputs(session, batch, tokens);
    if (!inputs)
      return inputs.status();
    auto measured = session.profileForward(*inputs, repetitions);
    if (!measured)
      return measured.status();
    return measured.take();
  }
  std::vector<rt::Tokens> prompts =
      randomPrompts(session, batch, kind == rt::functions::decode ? 1 : tokens);
  std::vector<int32_t> pasts(batch, past);
  auto measured = session.backend().profile(kind, prompts, pasts, repetitions);
  if (!measured)
    return measured.status();
  return measured.take();
}

/// Of steps behind `depth` tokens, as Meter::decode() has them.
static rt::Result<std::vector<Phases>> measurePhases(rt::Session &session, int batch, int depth,
                                                     int steps) {
  std::vector<rt::Tokens> context = randomPrompts(session, batch, depth);
  if (rt::Status s = session.prefill(context).status(); !s.ok())
    return s;
  for (int run = 0; run < 3; ++run) { // two to warm up
    if (rt::Status s = session.backend().takeMarks().status(); !s.ok())
      return s;
    std::vector<rt::Tokens> last;
    for (const rt::Tokens &t : context)
      last.push_back({t.back()});
    if (rt::Status s = session.prefill(last, std::vector<int32_t>(batch, depth - 1)).status();
        !s.ok())
      return s;
    if (rt::Status s = session.decode(steps).status(); !s.ok())
      return s;
  }
  auto marks = session.backend().takeMarks();
  if (!marks)
    return marks.status();
  std::vector<Phases> phases;
  for (const rt::KernelMarks &of : *marks)
    for (Phases &p : phasesOf(of))
      phases.push_back(std::move(p));
  return phases;
}

rt::Status timeWholeRuns(rt::Session &session, const MeasureOptions &options,
                         std::vector<Row> &rows) {
  // The end of the last step is that of all: each step that is timed takes whole runs of its own.
  auto isLast = [&](const plan::StepT &step) {
    return std::ranges::any_of(session.backend().functions(), [&](const auto &function) {
      return !function->steps.empty() && function->steps.back().get() == &step;
    });
  };
  for (Row &row : rows) {
    auto inputs = randomInputs(session, row.batch, row.tokens);
    if (!inputs)
      return inputs.status();
    auto measured = session.profileForward(*inputs, options.repetitions, isLast);
    if (!measured)
      return measured.status();
    row.device = measured->steps.empty() ? 0 : measured->steps.back().end;
    row.bytes = row.flops = 0;
    for (const auto &step : measured->function->steps) {
      row.bytes += valueOf(step->bytes, measured->symbols);
      row.flops += valueOf(step->flops, measured->symbols);
    }
  }
  return {};
}

rt::Result<std::vector<Profile>> profile(rt::Session &session, const MeasureOptions &options,
                                         const Peak &peak) {
  std::vector<Profile> profiles;
  auto one = [&](const char *kind, int batch, int tokens, int past) -> rt::Status {
    if (options.progress)
      options.progress("profile of " + Profile{kind, batch, tokens, {}}.title());
    double start = options.trace ? options.trace->now() : 0;
    auto measured = measureSteps(session, kind, batch, tokens, past, options.repetitions);
    if (!measured)
      return measured.status();
    Profile p{kind, batch, tokens, {}};
    p.steps = stepRows(session.plan().meta(), *measured, double(batch) * past, peak);
    const std::string track = "device: " + p.title();
    for (const StepRow &s : p.steps)
      if (options.trace)
        options.trace->span(track, s.op, start + s.begin, std::max(s.time, 0.0),
                            Json{{"kernel", s.kernel},
                                 {"grid", s.grid},
                                 {"bytes", s.bytes},
                                 {"flops", s.flops},
                                 {"floor_ms", s.floor},
                                 {"nodes", s.nodes}});
    if (std::string_view(kind) == rt::functions::decode) {
      auto phases = measurePhases(session, batch, past, options.decodeTokens);
      if (!phases)
        return phases.status();
      p.phases = phases.take();
    }
    profiles.push_back(std::move(p));
    return {};
  };
  const bool whole = !session.hasKvState();
  for (int batch : options.batches) {
    for (int length : options.prompts)
      if (rt::Status s =
              one(whole ? rt::functions::forward : rt::functions::prefill, batch, length, 0);
          !s.ok())
        return s;
    if (whole)
      continue;
    for (int depth : options.depths)
      if (rt::Status s = one(rt::functions::decode, batch, depth, depth); !s.ok())
        return s;
  }
  return profiles;
}

} // namespace gpt2c

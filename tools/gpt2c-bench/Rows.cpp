#include "tools/gpt2c-bench/Rows.h"

#include "runtime/plan/FunctionNames.h"
#include "tools/gpt2c-bench/ProfileOutput.h"
#include "tools/gpt2c-bench/Sheet.h"
#include "tools/runtime-common/Report.h"

#include "tools/runtime-common/Json.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <numeric>

namespace gpt2c {

int RowsCase::sequences() const {
  return std::accumulate(groups.begin(), groups.end(), 0,
                         [](int sum, const RowsGroup &g) { return sum + g.sequences; });
}
int RowsCase::rows() const {
  return std::accumulate(groups.begin(), groups.end(), 0,
                         [](int sum, const RowsGroup &g) { return sum + g.sequences * g.tokens; });
}
int64_t RowsCase::past() const {
  return std::accumulate(
      groups.begin(), groups.end(), int64_t{0},
      [](int64_t sum, const RowsGroup &g) { return sum + int64_t{g.sequences} * g.past; });
}

bool RowsCase::isDecode() const {
  return std::ranges::all_of(
      groups, [&](const RowsGroup &g) { return g.tokens == 1 && g.past == groups[0].past; });
}

/// "3x128@7"; none where it is something else.
static std::optional<RowsGroup> parseGroup(std::string_view text) {
  constexpr int most = 1 << 20;
  RowsGroup g;
  const char *at = text.data(), *end = at + text.size();
  auto number = [&](int &to, int least) {
    const std::from_chars_result read = std::from_chars(at, end, to);
    at = read.ptr;
    return read.ec == std::errc() && to >= least && to <= most;
  };
  auto sign = [&](char c) {
    const bool is = at != end && *at == c;
    at += is;
    return is;
  };
  if (!number(g.sequences, 1) || !sign('x') || !number(g.tokens, 1))
    return std::nullopt;
  if (at != end && (!sign('@') || !number(g.past, 0)))
    return std::nullopt;
  return at == end ? std::optional(g) : std::nullopt;
}

rt::Result<RowsCase> parseRowsCase(std::string_view text) {
  RowsCase parsed{.text = std::string(text), .groups = {}};
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('+', begin), text.size());
    const std::optional<RowsGroup> group = parseGroup(text.substr(begin, end - begin));
    if (!group)
      return {rt::Code::Usage,
              "--rows takes calls such as 3x128 (three sequences of 128 tokens) or "
              "32x1@512+1x64 (one token of each of 32 behind 512 others, and 64 "
              "of one), not '" +
                  parsed.text + "'"};
    parsed.groups.push_back(*group);
    begin = end + 1;
  }
  return parsed;
}

namespace {

/// A call, with pages of its own for each sequence. What they hold is that of no prompt: every call
/// writes the same places, and none computes the tokens before.
class Call {
public:
  Call(const RowsCase &what, const rt::PagedState &state, int32_t vocabulary,
       const rt::SamplingParams &sampling) {
    int32_t page = 0, sequence = 0;
    for (const RowsGroup &g : what.groups)
      for (int i = 0; i < g.sequences; ++i, ++sequence) {
        rt::Tokens ids;
        for (int t = 0; t < g.tokens; ++t)
          ids.push_back((sequence * 131 + t * 17 + 5) % std::max(1, vocabulary));
        std::vector<int32_t> pages((g.past + g.tokens + state.pageTokens - 1) / state.pageTokens);
        std::iota(pages.begin(), pages.end(), page);
        page += static_cast<int32_t>(pages.size());
        tokens_.push_back(std::move(ids));
        pages_.push_back(std::move(pages));
        past_.push_back(g.past);
      }
    needed_ = page;
    for (size_t i = 0; i < tokens_.size(); ++i)
      segments_.push_back({.tokens = tokens_[i], .past = past_[i], .pages = pages_[i]});
    sample(sampling, vocabulary);
    // Single tokens are the choices of the call before, as an engine has them.
    carried_ = segments_;
    for (size_t i = 0; i < carried_.size(); ++i)
      if (tokens_[i].size() == 1)
        carried_[i].carry = static_cast<int32_t>(i);
  }
  int32_t neededPages() const { return needed_; }
  std::span<const rt::Segment> segments() const { return segments_; }
  std::span<const rt::Segment> carried() const { return carried_; }

private:
  /// Penalties act on tokens that stand for those of the past.
  void sample(rt::SamplingParams sampling, int32_t vocabulary) {
    if (sampling.isGreedy())
      return;
    for (size_t i = 0; i < segments_.size(); ++i) {
      sampling.seed = i;
      rt::Tokens text(size_t(past_[i]) + tokens_[i].size());
      for (size_t t = 0; t < text.size(); ++t)
        text[t] = int32_t((i * 7919 + t * 31) % size_t(std::max(1, vocabulary)));
      samplers_.emplace_back(sampling, text);
    }
    for (size_t i = 0; i < segments_.size(); ++i)
      segments_[i].sampled = samplers_[i].choiceAt(past_[i] + int64_t(tokens_[i].size()));
  }

  std::vector<rt::Sampler> samplers_;
  std::vector<rt::Tokens> tokens_;
  std::vector<std::vector<int32_t>> pages_;
  std::vector<int32_t> past_;
  std::vector<rt::Segment> segments_, carried_;
  int32_t needed_ = 0;
};

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

rt::Status once(rt::Backend &backend, std::span<const rt::Segment> segments) {
  if (rt::Status s = backend.extend(segments); !s.ok())
    return s;
  auto out = backend.extended();
  return out.status();
}

/// Milliseconds of a call of `calls`, two of which are under way at a time.
rt::Result<double> oneBehindTheOther(rt::Backend &backend, const Call &call, int calls) {
  if (rt::Status s = backend.extend(call.segments()); !s.ok())
    return s;
  const auto start = Clock::now();
  for (int i = 0; i < calls; ++i) {
    if (rt::Status s = backend.extend(call.carried()); !s.ok())
      return s;
    if (auto out = backend.extended(); !out)
      return out.status();
  }
  if (auto out = backend.extended(); !out)
    return out.status();
  return since(start) / calls;
}

rt::Status profileCase(rt::Session &session, const RowsCase &what, const Call &call,
                       int repetitions, RowsResults &results) {
  auto measured = session.backend().profileRows(call.segments(), repetitions);
  if (!measured)
    return measured.status();
  for (const rt::FunctionProfile &p : *measured) {
    const bool sample = p.function->name == rt::functions::sample;
    results.profiles.push_back({.kind = sample ? rt::functions::sample : rt::functions::extend,
                                .call = what.text,
                                .steps = stepRows(session.plan().meta(), p,
                                                  sample ? 0 : double(what.past()), results.peak)});
  }
  return {};
}

/// What @decode takes for a step of the call, once as a call for each and once for all `steps`.
rt::Status measureDecode(rt::Session &session, RowsRow &row, int repetitions) {
  const int batch = row.what.sequences(), depth = std::max(row.what.groups[0].past, 1);
  const std::vector<rt::Tokens> context = randomPrompts(session, batch, depth);
  if (rt::Status s = session.prefill(context).status(); !s.ok())
    return s;
  std::vector<rt::Tokens> last;
  for (const rt::Tokens &t : context)
    last.push_back({t.back()});
  const std::vector<int32_t> past(batch, depth - 1);
  std::vector<double> single, together;
  for (int i = -1; i < std::min(repetitions, 10); ++i) { // one to warm up
    for (auto [count, times] : {std::pair(1, &single), {RowsResults::steps, &together}}) {
      if (rt::Status s = session.prefill(last, past).status(); !s.ok())
        return s;
      for (int step = 0; step < RowsResults::steps; step += count) {
        const auto from = Clock::now();
        if (rt::Status s = session.decode(count).status(); !s.ok())
          return s;
        if (i >= 0)
          times->push_back(since(from) / count);
      }
    }
  }
  row.decode = quantiles(std::move(single)).median;
  row.decodeSteps = quantiles(std::move(together)).median;
  return {};
}

rt::Result<RowsRow> measureCase(rt::Session &session, const RowsCase &what, const Call &call,
                                int repetitions) {
  rt::Backend &backend = session.backend();
  RowsRow row;
  row.what = what;
  // A GPU that was idle takes milliseconds to raise its clocks.
  constexpr double warmup = 20;
  constexpr int leastWarmups = 4; // both buffers of calls, each as launches and as a graph
  const auto start = Clock::now();
  for (int i = 0; i < leastWarmups || since(start) < warmup; ++i)
    if (rt::Status s = once(backend, call.segments()); !s.ok())
      return s;
  std::vector<double> wall, device;
  for (int i = 0; i < repetitions; ++i) {
    const auto from = Clock::now();
    if (rt::Status s = once(backend, call.segments()); !s.ok())
      return s;
    wall.push_back(since(from));
  }
  backend.timeOnDevice(true);
  for (int i = 0; i < repetitions; ++i) {
    if (rt::Status s = once(backend, call.segments()); !s.ok()) {
      backend.timeOnDevice(false);
      return s;
    }
    device.push_back(backend.stats().deviceMilliseconds);
  }
  backend.timeOnDevice(false);
  row.wall = quantiles(std::move(wall));
  row.device = quantiles(std::move(device)).median;
  auto behind = oneBehindTheOther(backend, call, repetitions);
  if (!behind)
    return behind.status();
  row.behind = *behind;
  const auto &meta = session.plan().meta(); // a batch invariant plan has @extend alone
  if (backend.kind() != "cpu" && what.isDecode() && !meta.batch_invariant &&
      what.groups[0].past + RowsResults::steps <= meta.kv->max_context)
    if (rt::Status s = measureDecode(session, row, repetitions); !s.ok())
      return s;
  return row;
}

} // namespace

rt::Result<RowsResults> measureRows(rt::Session &session, std::span<const RowsCase> cases,
                                    const RowsOptions &options) {
  rt::Backend &backend = session.backend();
  if (!options.sampling.isGreedy() && !backend.samples())
    return rt::Status(rt::Code::Usage, "on " + backend.name() +
                                           " the plan makes no choices but greedy ones; --workload "
                                           "samples on the host there");
  if (rt::Status s = backend.allocatePages(0); !s.ok())
    return s;
  RowsResults results;
  results.precision = session.plan().meta().precision;
  results.device = backend.name();
  results.repetitions = options.repetitions;
  if (options.profile) {
    auto peak = measurePeak(backend, results.precision);
    if (!peak)
      return peak.status();
    results.peak = *peak;
  }
  const rt::PagedState state = backend.pagedState();
  for (const RowsCase &what : cases) {
    const Call call(what, state, session.plan().meta().vocab_size, options.sampling);
    if (call.neededPages() > state.pages)
      return rt::Status(rt::Code::Usage, "--rows=" + what.text + " takes " +
                                             std::to_string(call.neededPages()) +
                                             " pages, there are " + std::to_string(state.pages) +
                                             " (gpt2c --max-batch and --max-context change that)");
    auto row = measureCase(session, what, call, options.repetitions);
    if (!row)
      return row.status();
    results.rows.push_back(std::move(*row));
    if (options.profile)
      if (rt::Status s = profileCase(session, what, call, options.repetitions, results); !s.ok())
        return s;
  }
  return results;
}

static Sheet sheetOf(const RowsResults &r) {
  Sheet sheet{{"call", ">sequences", ">rows", ">ms", ">p90", ">behind another ms", ">device ms",
               ">@decode ms", ">@decode of 32 ms", ">rows/s"},
              {}};
  for (const RowsRow &row : r.rows)
    sheet.rows.push_back({row.what.text, std::to_string(row.what.sequences()),
                          std::to_string(row.what.rows()), fixed(row.wall.median, 4),
                          fixed(row.wall.p90, 4), fixed(row.behind, 4), fixed(row.device, 4),
                          unless(row.decode == 0, fixed(row.decode, 4)),
                          unless(row.decode == 0, fixed(row.decodeSteps, 4)),
                          fixed(row.what.rows() / row.behind * 1e3, 0)});
  return sheet;
}

void writeMarkdown(const RowsResults &r, std::ostream &os) {
  os << "Calls over rows of " << r.plan << " (" << r.precision << ") on " << r.device << ", "
     << r.repetitions << " samples\n\n";
  sheetOf(r).markdown(os);
  os << "\nms: a call that is waited for. Behind another: a call in a row of them, each begun "
        "before the one before is read; single tokens are that one's choices. @decode: a step "
        "of it for the same sequences, whose state has no pages, that is waited for, and one of "
     << RowsResults::steps << " that the device has at once.\n";
  printMarkdown(r.profiles, r.peak, os);
}

void writeCsv(const RowsResults &r, std::ostream &os) {
  sheetOf(r).csv(os);
  printCsv(r.profiles, r.peak, os);
}

Json jsonOf(const RowsResults &r) {
  Json calls = Json::array();
  for (const RowsRow &row : r.rows)
    calls.push_back(Json{{"call", row.what.text},
                         {"sequences", row.what.sequences()},
                         {"rows", row.what.rows()},
                         {"ms", row.wall.median},
                         {"p90", row.wall.p90},
                         {"p99", row.wall.p99},
                         {"behind_another_ms", row.behind},
                         {"device_ms", row.device},
                         {"decode_ms", row.decode},
                         {"decode_of_32_ms", row.decodeSteps}});
  Json object{{"plan", r.plan},
              {"precision", r.precision},
              {"device", r.device},
              {"repetitions", r.repetitions},
              {"calls", std::move(calls)}};
  if (!r.profiles.empty())
    object["profiles"] = profilesJson(r.profiles);
  return object;
}

} // namespace gpt2c

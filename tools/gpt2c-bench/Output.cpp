#include "tools/gpt2c-bench/Output.h"

#include "runtime/plan/FunctionNames.h"
#include "tools/gpt2c-bench/ProfileOutput.h"
#include "tools/gpt2c-bench/Sheet.h"

namespace gpt2c {

namespace {

bool isDecode(const char *kind) { return std::string_view(kind) == rt::functions::decode; }
bool isPrefill(const char *kind) { return std::string_view(kind) == rt::functions::prefill; }

Sheet rowSheet(const Results &r) {
  Sheet sheet{{"kind", ">batch", ">tokens", ">ms", ">p90", ">p99", ">ttft ms", ">tbt ms",
               ">tbt p99", ">device ms", ">tokens/s", ">GB/s", ">% of GB/s", ">TFLOP/s",
               ">% of TFLOP/s"},
              {}};
  for (const Row &row : r.rows) {
    const double seconds = (row.device > 0 ? row.device : row.wall.median) / 1e3;
    const bool decode = isDecode(row.kind);
    const double tokens = double(row.batch) * (decode ? 1 : row.tokens);
    const double bandwidth = row.bytes / seconds, rate = row.flops / seconds;
    auto ms = [](double v) { return fixed(v, 4); };
    sheet.rows.push_back(
        {row.kind, std::to_string(row.batch), std::to_string(row.tokens), ms(row.wall.median),
         ms(row.wall.p90), ms(row.wall.p99), unless(!isPrefill(row.kind), ms(row.wall.median)),
         unless(!decode, ms(row.between.median)), unless(!decode, ms(row.between.p99)),
         unless(row.device <= 0, ms(row.device)), fixed(tokens / (row.wall.median / 1e3), 1),
         fixed(bandwidth / 1e9, 1), percent(bandwidth, r.peak.bytesPerSecond),
         fixed(rate / 1e12, 3), percent(rate, r.peak.flopsPerSecond)});
  }
  return sheet;
}

std::string describePeak(const Peak &peak) {
  std::string text = fixed(peak.bytesPerSecond / 1e9, 0) + " GB/s";
  if (peak.flopsPerSecond > 0)
    text +=
        ", " + fixed(peak.flopsPerSecond / 1e12, peak.flopsPerSecond < 1e13 ? 3 : 0) + " TFLOP/s";
  return text + " (" + peak.note + ")";
}

const char *const explanation =
    "prefill: prompt in to first greedy token out, which is the time to first token (ttft). "
    "decode: one token for every sequence, greedy choice included, the time of all steps of a "
    "sample divided by their number, starting with `tokens` tokens in the KV state; tbt: the time "
    "between tokens of a caller that asks for one step after the other and reads each token. "
    "ms, p90, p99: host clock around the blocking call; token ids go in and come out, logits stay "
    "on the device; loading and tokenizing are not included. device ms: the device's clock. GB/s "
    "and TFLOP/s: the fewest bytes (each weight once, the KV state once) and operations of that "
    "work over the device's time, or the host's where the device has no clock; % of these: of "
    "what this device reached in this run, see `peak`. forward: the whole graph of a plan without "
    "a KV state, its inputs copied in and its outputs out; device ms, GB/s and TFLOP/s are those "
    "of "
    "its launches alone, the middle half of the runs.";

} // namespace

void writeMarkdown(const Results &r, std::ostream &os) {
  os << r.plan << " (" << r.precision << ") on " << r.device << ", medians of " << r.repetitions
     << ", loaded in " << fixed(r.loadSeconds, 2) << " s\npeak: " << describePeak(r.peak) << "\n\n";
  rowSheet(r).markdown(os);
  os << "\n" << explanation << "\n";
  printMarkdown(r.profiles, r.peak, os);
}

/// One table; with profiles a table of their steps after an empty line.
void writeCsv(const Results &r, std::ostream &os) {
  rowSheet(r).csv(os);
  printCsv(r.profiles, r.peak, os);
}

static Json json(const Quantiles &q) {
  return Json{{"median", q.median}, {"p90", q.p90}, {"p99", q.p99}};
}

Json jsonOf(const Results &r) {
  Json rows = Json::array();
  for (const Row &row : r.rows) {
    Json o{{"kind", row.kind},       {"batch", row.batch},           {"tokens", row.tokens},
           {"steps", row.steps},     {"median_ms", row.wall.median}, {"p90_ms", row.wall.p90},
           {"p99_ms", row.wall.p99}, {"device_ms", row.device},      {"bytes", row.bytes},
           {"flops", row.flops}};
    if (isDecode(row.kind))
      o["time_between_tokens_ms"] = json(row.between);
    else if (isPrefill(row.kind))
      o["time_to_first_token_ms"] = json(row.wall);
    rows.push_back(std::move(o));
  }
  Json object{{"plan", r.plan},
              {"precision", r.precision},
              {"device", r.device},
              {"repetitions", r.repetitions},
              {"load_seconds", r.loadSeconds},
              {"device_bytes", int64_t(r.deviceBytes)},
              {"peak", Json{{"bytes_per_second", r.peak.bytesPerSecond},
                            {"flops_per_second", r.peak.flopsPerSecond},
                            {"note", r.peak.note}}},
              {"rows", std::move(rows)}};
  if (!r.profiles.empty())
    object["profiles"] = profilesJson(r.profiles);
  return object;
}

} // namespace gpt2c

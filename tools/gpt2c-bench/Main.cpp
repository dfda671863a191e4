// gpt2c-bench: how fast a plan runs on this machine.
#include "tools/common/CommandLine.h"
#include "tools/common/Device.h"
#include "tools/common/Report.h"
#include "tools/common/Table.h"
#include "tools/gpt2c-bench/Measure.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Process.h"

using namespace gpt2c;
namespace cl = llvm::cl;

enum class Format { Markdown, Csv, Json };

static cl::opt<std::string> planPath(cl::Positional, cl::Required, cl::desc("PLAN"),
                                     cl::cat(toolCategory()));
static cl::list<int> batches("b", cl::CommaSeparated, cl::desc("Batch sizes (default 1)"),
                             cl::value_desc("LIST"), cl::cat(toolCategory()));
static cl::list<int> prompts("p", cl::CommaSeparated,
                             cl::desc("Prompt lengths of prefill (default 128; 0: no prefill)"),
                             cl::value_desc("LIST"), cl::cat(toolCategory()));
static cl::list<int>
    depths("d", cl::CommaSeparated,
           cl::desc("Tokens in the KV state when decode starts (default 128; 0: no decode)"),
           cl::value_desc("LIST"), cl::cat(toolCategory()));
static cl::opt<int> decodeTokens("n", cl::desc("Decode steps of one sample (default 64)"),
                                 cl::init(64), cl::cat(toolCategory()));
static cl::opt<int> repetitions("r", cl::desc("Samples (default 10)"), cl::init(10),
                                cl::cat(toolCategory()));
static cl::opt<Format> format("o", cl::desc("Output"),
                              cl::values(clEnumValN(Format::Markdown, "md", "a table"),
                                         clEnumValN(Format::Csv, "csv", "comma separated"),
                                         clEnumValN(Format::Json, "json", "one object")),
                              cl::init(Format::Markdown), cl::cat(toolCategory()));

/// What one line of the output says.
static std::vector<std::pair<std::string, std::string>> columns(const Row &row) {
  double seconds = (row.device > 0 ? row.device : row.wall.median) / 1e3;
  double tokens = double(row.batch) * (row.steps > 1 ? 1 : row.tokens);
  auto number = [](double v, const char *style) { return llvm::formatv(style, v).str(); };
  return {{"kind", row.kind},
          {">batch", std::to_string(row.batch)},
          {">tokens", std::to_string(row.tokens)},
          {">ms", number(row.wall.median, "{0:f4}")},
          {">p90", number(row.wall.p90, "{0:f4}")},
          {">p99", number(row.wall.p99, "{0:f4}")},
          {">device ms", row.device > 0 ? number(row.device, "{0:f4}") : "-"},
          {">tokens/s", number(tokens / (row.wall.median / 1e3), "{0:f1}")},
          {">GB/s", number(row.bytes / seconds / 1e9, "{0:f1}")},
          {">TFLOP/s", number(row.flops / seconds / 1e12, "{0:f3}")}};
}

static const char *const explanation =
    "prefill: prompt in to first greedy token out (host clock). decode: one token for every "
    "sequence, greedy choice "
    "included, the time of all steps of a sample divided by their number, starting with `tokens` "
    "tokens in the KV state. "
    "ms, p90, p99: host clock around the blocking call. device ms: the device's clock. GB/s and "
    "TFLOP/s: the fewest "
    "bytes (each weight once, the KV state once) and operations of that work over the device's "
    "time, or the host's where "
    "the device has no clock.";

static void printTable(rt::Session &session, llvm::ArrayRef<Row> rows) {
  llvm::outs() << planPath << " (" << session.plan().meta().precision << ") on "
               << session.backend().name() << ", medians of " << repetitions << "\n\n";
  auto line = [](auto &&cells) {
    llvm::outs() << "|";
    for (const auto &c : cells)
      llvm::outs() << " " << llvm::StringRef(c).ltrim('>') << " |";
    llvm::outs() << "\n";
  };
  std::vector<std::string> titles, rule;
  for (auto &[title, value] : columns(rows.front())) {
    titles.push_back(title);
    rule.push_back(title[0] == '>' ? "---:" : "---");
  }
  line(titles);
  line(rule);
  for (const Row &row : rows) {
    std::vector<std::string> cells;
    for (auto &[title, value] : columns(row))
      cells.push_back(value);
    line(cells);
  }
  llvm::outs() << "\n" << explanation << "\n";
}

static void printCsv(llvm::ArrayRef<Row> rows) {
  for (auto [i, column] : llvm::enumerate(columns(rows.front())))
    llvm::outs() << (i ? "," : "") << llvm::StringRef(column.first).ltrim('>');
  llvm::outs() << "\n";
  for (const Row &row : rows) {
    for (auto [i, column] : llvm::enumerate(columns(row)))
      llvm::outs() << (i ? "," : "") << column.second;
    llvm::outs() << "\n";
  }
}

static void printJson(rt::Session &session, llvm::ArrayRef<Row> all) {
  rt::BackendStats stats = session.backend().stats();
  llvm::json::Array rows;
  for (const Row &row : all)
    rows.push_back(llvm::json::Object{{"kind", row.kind},
                                      {"batch", row.batch},
                                      {"tokens", row.tokens},
                                      {"steps", row.steps},
                                      {"median_ms", row.wall.median},
                                      {"p90_ms", row.wall.p90},
                                      {"p99_ms", row.wall.p99},
                                      {"device_ms", row.device},
                                      {"bytes", row.bytes},
                                      {"flops", row.flops}});
  llvm::json::Object object{{"plan", planPath.getValue()},
                            {"precision", session.plan().meta().precision},
                            {"device", session.backend().name()},
                            {"repetitions", repetitions.getValue()},
                            {"load_seconds", stats.loadSeconds},
                            {"device_bytes", int64_t(stats.deviceBytes)},
                            {"rows", std::move(rows)}};
  llvm::outs() << llvm::formatv("{0:2}", llvm::json::Value(std::move(object))) << "\n";
}

static llvm::Error checkList(llvm::StringRef flag, cl::list<int> &list, int byDefault,
                             std::vector<int> &out) {
  if (list.empty())
    out.push_back(byDefault);
  for (int v : list) {
    if (v < 0)
      return makeError(ExitCode::Usage, "-" + flag + " takes numbers above 0");
    if (v > 0)
      out.push_back(v);
  }
  return llvm::Error::success();
}

static llvm::Error run() {
  MeasureOptions options;
  if (llvm::Error e = checkList("b", batches, 1, options.batches))
    return e;
  if (llvm::Error e = checkList("p", prompts, 128, options.prompts))
    return e;
  if (llvm::Error e = checkList("d", depths, 128, options.depths))
    return e;
  if (repetitions < 1 || decodeTokens < 1)
    return makeError(ExitCode::Usage, "-r and -n take numbers above 0");
  options.decodeTokens = decodeTokens;
  options.repetitions = repetitions;
  if (llvm::sys::Process::StandardErrIsDisplayed())
    options.progress = [](const std::string &what) { llvm::errs() << what << "\n"; };
  auto session = openSession(planPath);
  if (!session)
    return session.takeError();
  if (!(*session)->hasKvState())
    return makeError(
        ExitCode::Unsupported,
        "the plan has no KV state on this device, so there is no decode step to measure");
  auto rows = measure(**session, options);
  if (!rows)
    return rows.takeError();
  if (rows->empty())
    return makeError(ExitCode::Usage, "nothing to measure: every list is empty");
  switch (format) {
  case Format::Markdown:
    printTable(**session, *rows);
    break;
  case Format::Csv:
    printCsv(*rows);
    break;
  case Format::Json:
    printJson(**session, *rows);
    break;
  }
  return llvm::Error::success();
}

int main(int argc, char **argv) {
  parseCommandLine(argc, argv, "gpt2c-bench: how fast a plan runs on this machine\n");
  return report(run());
}

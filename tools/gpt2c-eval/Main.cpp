// gpt2c-eval: how well plans predict a text, and how far they are from a baseline plan.
#include "tools/common/CommandLine.h"
#include "tools/common/DeviceFlags.h"
#include "tools/common/Quality.h"
#include "tools/common/Report.h"
#include "tools/common/Tokens.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Process.h"

#include <chrono>

using namespace gpt2c;
namespace cl = llvm::cl;

enum class Format { Markdown, Csv, Json };

static cl::list<std::string> planPaths(cl::Positional, cl::OneOrMore, cl::desc("PLAN..."),
                                       category());
static cl::opt<std::string>
    textPath("text", cl::Required,
             cl::desc("The text, read with the first plan's tokenizer (- is stdin); FILE.ids holds "
                      "token ids. <|endoftext|> separates documents"),
             cl::value_desc("FILE"), category());
static cl::opt<std::string>
    baselinePath("baseline", cl::desc("Compare with this plan: KL divergence, agreement, logits"),
                 cl::value_desc("PLAN"), category());
static cl::opt<int64_t>
    window("window",
           cl::desc("Tokens a plan sees at once (default: the smallest context of the "
                    "plans)"),
           cl::value_desc("N"), cl::init(0), category());
static cl::opt<int64_t> stride("stride",
                               cl::desc("Tokens from one window to the next (default: the window, "
                                        "so that windows do not overlap)"),
                               cl::value_desc("N"), cl::init(0), category());
static cl::opt<int64_t> maxTokens("max-tokens",
                                  cl::desc("Only the first N tokens of the text (default: all)"),
                                  cl::value_desc("N"), cl::init(0), category());
static cl::opt<int64_t> batch("b",
                              cl::desc("Windows at once (default: what the plans and 16 MiB "
                                       "of logits allow)"),
                              cl::value_desc("N"), cl::init(0), category());
static cl::opt<std::string>
    tokenizerPath("tokenizer",
                  cl::desc("Use this folder or tokenizer.json, not the plan's tokenizer"),
                  cl::value_desc("PATH"), category());
static cl::opt<std::string>
    maxIncrease("max-ppl-increase",
                cl::desc("Fail with exit code 8 where a perplexity is further above the "
                         "baseline's: 1% or 0.01"),
                cl::value_desc("SHARE"), category());
static cl::opt<double> maxKl("max-kl",
                             cl::desc("Fail with exit code 8 where the mean KL divergence is "
                                      "larger"),
                             cl::value_desc("NATS"), category());
static cl::opt<Format> format("o", cl::desc("Output"),
                              cl::values(clEnumValN(Format::Markdown, "md", "a table (default)"),
                                         clEnumValN(Format::Csv, "csv", "comma separated"),
                                         clEnumValN(Format::Json, "json", "one object")),
                              cl::init(Format::Markdown), category());

namespace {

/// A plan and what it was found to be worth.
struct Row {
  std::string path;
  std::unique_ptr<rt::Session> session = nullptr;
  QualityReport report = {};
};

/// `120 of 490 windows, perplexity 27.81, 31 s left`, rewritten in place.
class Progress {
public:
  void operator()(int64_t done, int64_t windows, double perplexity) {
    double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    llvm::errs() << llvm::formatv("\r{0} of {1} windows, perplexity {2:f2}, {3:f0} s left \x1b[K",
                                  done, windows, perplexity,
                                  seconds / double(done) * double(windows - done));
    if (done == windows)
      llvm::errs() << "\r\x1b[K";
  }

private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

} // namespace

static std::string number(double v, const char *style) {
  std::string out;
  llvm::raw_string_ostream(out) << llvm::format(style, v);
  return out;
}

/// What one line of the output says; a title that starts with '>' is a number's.
static std::vector<std::pair<std::string, std::string>> columns(const Row &row) {
  const QualityReport &r = row.report;
  std::vector<std::pair<std::string, std::string>> out{
      {"plan", row.path},
      {"precision", row.session->plan().meta().precision},
      {">perplexity", number(r.perplexity, "%.4f")}};
  if (baselinePath.empty())
    return out;
  QualityReport::Comparison c = r.baseline.value_or(QualityReport::Comparison());
  auto cell = [&](double v, const char *style) { return r.baseline ? number(v, style) : "-"; };
  out.push_back({">increase %", cell(c.increase * 100, "%+.4f")});
  out.push_back({">+- %", cell(c.increaseError * 100, "%.4f")});
  out.push_back({">KL mean", cell(c.klMean, "%.3g")});
  out.push_back({">KL p99", cell(c.klP99, "%.3g")});
  out.push_back({">top-1 %", cell(c.agreement * 100, "%.3f")});
  out.push_back({">max logit error", cell(c.largestError, "%.3g")});
  return out;
}

static void printTable(llvm::ArrayRef<Row> rows, const EvalOptions &options) {
  llvm::raw_ostream &os = llvm::outs();
  os << textPath << " on " << rows[0].session->backend().name() << ": " << rows[0].report.tokens
     << " tokens scored, windows of " << options.window << ", stride " << options.stride << "\n\n|";
  for (auto &[title, value] : columns(rows[0]))
    os << " " << llvm::StringRef(title).ltrim('>') << " |";
  os << "\n|";
  for (auto &[title, value] : columns(rows[0]))
    os << (title[0] == '>' ? " ---: |" : " --- |");
  for (const Row &row : rows) {
    os << "\n|";
    for (auto &[title, value] : columns(row))
      os << " " << value << " |";
  }
  os << "\n";
  if (!baselinePath.empty())
    os << "\nThe first row is the baseline. +-: the standard error of the increase over the "
          "tokens. "
          "KL: divergence of a plan's next-token distribution from the baseline's, in nats. "
          "top-1: how often both have the same most likely token.\n";
}

/// In quotes where a path holds what separates cells.
static std::string csvCell(llvm::StringRef text) {
  if (text.find_first_of(",\"\r\n") == llvm::StringRef::npos)
    return text.str();
  std::string out = "\"";
  for (char c : text)
    out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

static void printCsv(llvm::ArrayRef<Row> rows) {
  auto line = [](auto &&cells) {
    for (auto [i, cell] : llvm::enumerate(cells))
      llvm::outs() << (i ? "," : "") << csvCell(cell);
    llvm::outs() << "\n";
  };
  std::vector<std::string> titles;
  for (auto &[title, value] : columns(rows[0]))
    titles.push_back(llvm::StringRef(title).ltrim('>').str());
  line(titles);
  for (const Row &row : rows) {
    std::vector<std::string> cells;
    for (auto &[title, value] : columns(row))
      cells.push_back(value);
    line(cells);
  }
}

static void printJson(llvm::ArrayRef<Row> rows, const EvalOptions &options) {
  llvm::json::Array plans;
  for (const Row &row : rows) {
    llvm::json::Object one = toJson(row.report);
    one["plan"] = llvm::json::fixUTF8(row.path);
    one["precision"] = row.session->plan().meta().precision;
    one["device"] = row.session->backend().name();
    plans.push_back(std::move(one));
  }
  llvm::json::Object object{{"text", llvm::json::fixUTF8(textPath)},
                            {"window", options.window},
                            {"stride", options.stride},
                            {"plans", std::move(plans)}};
  if (!baselinePath.empty())
    object["baseline"] = llvm::json::fixUTF8(baselinePath);
  llvm::outs() << llvm::formatv("{0:2}", llvm::json::Value(std::move(object))) << "\n";
}

/// Window, stride and batch that all plans can run.
static llvm::Expected<EvalOptions> chooseOptions(llvm::ArrayRef<Row> rows) {
  int64_t context = 0, most = 64, vocab = 1;
  for (const Row &row : rows) {
    const plan::PlanT &meta = row.session->plan().meta();
    vocab = std::max<int64_t>(vocab, meta.vocab_size);
    if (!meta.kv)
      continue;
    context = context ? std::min<int64_t>(context, meta.kv->max_context) : meta.kv->max_context;
    most = std::min<int64_t>(most, meta.kv->max_batch);
  }
  EvalOptions options;
  options.window = window ? window : context;
  if (options.window == 0)
    return makeError(ExitCode::Usage, "the plan does not say how many positions the model has: "
                                      "give --window");
  options.stride = stride ? stride : options.window;
  options.maxTokens = maxTokens;
  options.batch = batch ? batch : evalBatch(options.window, vocab, most);
  options.threads = cpuThreads();
  options.sideBySide =
      llvm::all_of(rows, [](const Row &r) { return r.session->backend().kind() == "cuda"; });
  if (llvm::sys::Process::StandardErrIsDisplayed())
    options.progress = Progress();
  return options;
}

static llvm::Error checkUsage(QualityLimits &limits) {
  if (window < 0 || stride < 0 || maxTokens < 0 || batch < 0)
    return makeError(ExitCode::Usage, "--window, --stride, --max-tokens and -b are at least 1, "
                                      "or 0 for the default");
  if ((!maxIncrease.empty() || maxKl.getNumOccurrences()) && baselinePath.empty())
    return makeError(ExitCode::Usage, "--max-ppl-increase and --max-kl compare with a plan: give "
                                      "--baseline");
  if (!maxIncrease.empty()) {
    auto share = parseShare("--max-ppl-increase", maxIncrease);
    if (!share)
      return share.takeError();
    limits.maxIncrease = *share;
  }
  if (maxKl.getNumOccurrences())
    limits.maxKl = maxKl;
  return llvm::Error::success();
}

static llvm::Expected<std::vector<Row>> openPlans() {
  std::vector<Row> rows;
  if (!baselinePath.empty())
    rows.push_back({.path = baselinePath});
  for (const std::string &path : planPaths)
    rows.push_back({.path = path});
  for (Row &row : rows) {
    auto session = openSession(row.path);
    if (!session)
      return session.takeError();
    row.session = std::move(*session);
  }
  return rows;
}

static llvm::Error run() {
  QualityLimits limits;
  if (llvm::Error e = checkUsage(limits))
    return e;
  auto rows = openPlans();
  if (!rows)
    return rows.takeError();
  auto options = chooseOptions(*rows);
  if (!options)
    return options.takeError();
  auto tokenizer = openTokenizer(rows->front().session->plan(), tokenizerPath);
  if (!tokenizer)
    return tokenizer.takeError();
  auto tokens = readTokens(textPath, *tokenizer ? &**tokenizer : nullptr);
  if (!tokens)
    return tokens.takeError();
  std::vector<LogitsFunction> models;
  for (Row &row : *rows)
    models.push_back(logitsOf(*row.session));
  auto reports = evaluate(models, !baselinePath.empty(), *tokens, *options);
  if (!reports)
    return reports.takeError();
  for (auto [row, report] : llvm::zip_equal(*rows, *reports))
    row.report = report;
  switch (format.getValue()) {
  case Format::Markdown:
    printTable(*rows, *options);
    break;
  case Format::Csv:
    printCsv(*rows);
    break;
  case Format::Json:
    printJson(*rows, *options);
    break;
  }
  llvm::outs().flush();
  llvm::Error out = llvm::Error::success();
  for (const Row &row : *rows)
    if (llvm::Error e = checkLimits(row.report, limits))
      out = llvm::joinErrors(std::move(out), inContext(row.path, std::move(e)));
  return out;
}

int main(int argc, char **argv) {
  parseCommandLine(argc, argv,
                   "gpt2c-eval: how well plans predict a text, and how far they are from a "
                   "baseline plan\n");
  return runTool(run);
}

// gpt2c-eval: how well plans predict a text, and how far they are from a baseline plan.
#include "tools/runtime-common/DeviceFlags.h"
#include "tools/runtime-common/Quality.h"
#include "tools/runtime-common/Report.h"
#include "tools/runtime-common/Table.h"
#include "tools/runtime-common/Tokens.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <utility>

#include <unistd.h>

namespace gpt2c {
namespace {

enum class Format { Markdown, Csv, Json };

struct CommandLine {
  std::vector<std::string> plans;
  std::string text, baseline, tokenizer, maxIncrease;
  int64_t window = 0, stride = 0, maxTokens = 0, batch = 0;
  double maxKl = 0;
  Format format = Format::Markdown;
  DeviceFlags device;
  Flags flags{"gpt2c-eval: how well plans predict a text, and how far they are from a baseline "
              "plan"};

  CommandLine();
};

CommandLine::CommandLine() {
  flags.arguments("PLAN...", plans)
      .value("text", "FILE",
             "The text, read with the first plan's tokenizer (- is stdin); FILE.ids holds token "
             "ids. <|endoftext|> separates documents",
             text)
      .require("text")
      .value("baseline", "PLAN", "Compare with this plan: KL divergence, agreement, logits",
             baseline)
      .value("window", "N",
             "Tokens a plan sees at once (default: the smallest context of the plans)", window)
      .value("stride", "N",
             "Tokens from one window to the next (default: the window, so that windows do not "
             "overlap)",
             stride)
      .value("max-tokens", "N", "Only the first N tokens of the text (default: all)", maxTokens)
      .value("b", "N", "Windows at once (default: what the plans and 16 MiB of logits allow)",
             batch)
      .value("tokenizer", "PATH", "Use this folder or tokenizer.json, not the plan's tokenizer",
             tokenizer)
      .value("max-ppl-increase", "SHARE",
             "Fail with exit code 8 where a perplexity is further above the baseline's: 1% or 0.01",
             maxIncrease)
      .value("max-kl", "NATS", "Fail with exit code 8 where the mean KL divergence is larger",
             maxKl)
      .choice<Format>("o", "Output", format,
                      {{"md", Format::Markdown, "a table (default)"},
                       {"csv", Format::Csv, "comma separated"},
                       {"json", Format::Json, "one object"}});
  device.addTo(flags);
}

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
    std::cerr << "\r" << done << " of " << windows << " windows, perplexity "
              << fixed(perplexity, 2) << ", "
              << fixed(seconds / double(done) * double(windows - done), 0) << " s left \x1b[K"
              << (done == windows ? "\r\x1b[K" : "") << std::flush;
  }

private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::string number(double v, const char *style) {
  char text[400];
  std::snprintf(text, sizeof(text), style, v);
  return text;
}

/// What one line of the output says; a title that starts with '>' is a number's.
std::vector<std::pair<std::string, std::string>> columns(const CommandLine &c, const Row &row) {
  const QualityReport &r = row.report;
  std::vector<std::pair<std::string, std::string>> out{
      {"plan", row.path},
      {"precision", row.session->plan().meta().precision},
      {">perplexity", number(r.perplexity, "%.4f")}};
  if (c.baseline.empty())
    return out;
  const QualityReport::Comparison d = r.baseline.value_or(QualityReport::Comparison());
  auto cell = [&](double v, const char *style) { return r.baseline ? number(v, style) : "-"; };
  out.push_back({">increase %", cell(d.increase * 100, "%+.4f")});
  out.push_back({">+- %", cell(d.increaseError * 100, "%.4f")});
  out.push_back({">KL mean", cell(d.klMean, "%.3g")});
  out.push_back({">KL p99", cell(d.klP99, "%.3g")});
  out.push_back({">top-1 %", cell(d.agreement * 100, "%.3f")});
  out.push_back({">max logit error", cell(d.largestError, "%.3g")});
  return out;
}

/// A title without the mark of its side.
std::string plain(const std::string &title) { return title.substr(title.starts_with('>')); }

void printTable(const CommandLine &c, std::span<const Row> rows, const EvalOptions &options) {
  std::ostream &os = std::cout;
  os << c.text << " on " << rows[0].session->backend().name() << ": " << rows[0].report.tokens
     << " tokens scored, windows of " << options.window << ", stride " << options.stride << "\n\n|";
  for (auto &[title, value] : columns(c, rows[0]))
    os << " " << plain(title) << " |";
  os << "\n|";
  for (auto &[title, value] : columns(c, rows[0]))
    os << (title[0] == '>' ? " ---: |" : " --- |");
  for (const Row &row : rows) {
    os << "\n|";
    for (auto &[title, value] : columns(c, row))
      os << " " << value << " |";
  }
  os << "\n";
  if (!c.baseline.empty())
    os << "\nThe first row is the baseline. +-: the standard error of the increase over the "
          "tokens. KL: divergence of a plan's next-token distribution from the baseline's, in "
          "nats. "
          "top-1: how often both have the same most likely token.\n";
}

/// In quotes where a path holds what separates cells.
std::string csvCell(const std::string &text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos)
    return text;
  std::string out = "\"";
  for (char c : text)
    out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

void printCsv(const CommandLine &c, std::span<const Row> rows) {
  auto line = [](const std::vector<std::string> &cells) {
    const char *before = "";
    for (const std::string &cell : cells)
      std::cout << std::exchange(before, ",") << csvCell(cell);
    std::cout << "\n";
  };
  std::vector<std::string> titles;
  for (auto &[title, value] : columns(c, rows[0]))
    titles.push_back(plain(title));
  line(titles);
  for (const Row &row : rows) {
    std::vector<std::string> cells;
    for (auto &[title, value] : columns(c, row))
      cells.push_back(value);
    line(cells);
  }
}

void printJson(const CommandLine &c, std::span<const Row> rows, const EvalOptions &options) {
  Json plans = Json::array();
  for (const Row &row : rows) {
    Json one = toJson(row.report);
    one["plan"] = row.path;
    one["precision"] = row.session->plan().meta().precision;
    one["device"] = row.session->backend().name();
    plans.push_back(std::move(one));
  }
  Json object{{"text", c.text},
              {"window", options.window},
              {"stride", options.stride},
              {"plans", std::move(plans)}};
  if (!c.baseline.empty())
    object["baseline"] = c.baseline;
  std::cout << pretty(object);
}

/// Window, stride and batch that all plans can run.
rt::Result<EvalOptions> chooseOptions(const CommandLine &c, std::span<const Row> rows) {
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
  options.window = c.window ? c.window : context;
  if (options.window == 0)
    return {rt::Code::Usage, "the plan does not say how many positions the model has: give "
                             "--window"};
  options.stride = c.stride ? c.stride : options.window;
  options.maxTokens = c.maxTokens;
  options.batch = c.batch ? c.batch : evalBatch(options.window, vocab, most);
  options.threads = c.device.threads;
  options.sideBySide =
      std::ranges::all_of(rows, [](const Row &r) { return r.session->backend().kind() == "cuda"; });
  if (::isatty(STDERR_FILENO))
    options.progress = Progress();
  return options;
}

rt::Status checkUsage(const CommandLine &c, QualityLimits &limits) {
  if (c.window < 0 || c.stride < 0 || c.maxTokens < 0 || c.batch < 0)
    return {rt::Code::Usage, "--window, --stride, --max-tokens and -b are at least 1, or 0 for the "
                             "default"};
  if (!c.flags.firstGiven({"max-ppl-increase", "max-kl"}).empty() && c.baseline.empty())
    return {rt::Code::Usage,
            "--max-ppl-increase and --max-kl compare with a plan: give --baseline"};
  if (!c.maxIncrease.empty()) {
    rt::Result<double> share = parseShare("--max-ppl-increase", c.maxIncrease);
    if (!share)
      return share.status();
    limits.maxIncrease = *share;
  }
  if (c.flags.given("max-kl"))
    limits.maxKl = c.maxKl;
  return {};
}

rt::Result<std::vector<Row>> openPlans(const CommandLine &c) {
  std::vector<Row> rows;
  if (!c.baseline.empty())
    rows.push_back({.path = c.baseline});
  for (const std::string &path : c.plans)
    rows.push_back({.path = path});
  for (Row &row : rows) {
    rt::Result<std::unique_ptr<rt::Session>> session = openSession(row.path, c.device);
    if (!session)
      return session.status();
    row.session = session.take();
  }
  return rows;
}

/// All limits that are exceeded, one a line.
rt::Status checkLimits(std::span<const Row> rows, const QualityLimits &limits) {
  std::string text;
  for (const Row &row : rows)
    for (const std::string &what : limitsExceeded(row.report, limits))
      text += (text.empty() ? "" : "\nerror: ") + row.path + ": " + what;
  return text.empty() ? rt::Status() : rt::Status(rt::Code::Quality, std::move(text));
}

rt::Status run(const CommandLine &c) {
  QualityLimits limits;
  if (rt::Status s = checkUsage(c, limits); !s.ok())
    return s;
  rt::Result<std::vector<Row>> rows = openPlans(c);
  if (!rows)
    return rows.status();
  rt::Result<EvalOptions> options = chooseOptions(c, *rows);
  if (!options)
    return options.status();
  rt::Result<std::optional<rt::Tokenizer>> tokenizer =
      planTokenizer(rows->front().session->plan(), c.tokenizer);
  if (!tokenizer)
    return tokenizer.status();
  rt::Result<rt::Tokens> tokens = tokensOfFile(c.text, *tokenizer ? &**tokenizer : nullptr);
  if (!tokens)
    return tokens.status();
  std::vector<LogitsFunction> models;
  for (Row &row : *rows)
    models.push_back(logitsOf(*row.session));
  rt::Result<std::vector<QualityReport>> reports =
      evaluate(models, !c.baseline.empty(), *tokens, *options);
  if (!reports)
    return reports.status();
  for (size_t i = 0; i < rows->size(); ++i)
    (*rows)[i].report = (*reports)[i];
  switch (c.format) {
  case Format::Markdown:
    printTable(c, *rows, *options);
    break;
  case Format::Csv:
    printCsv(c, *rows);
    break;
  case Format::Json:
    printJson(c, *rows, *options);
    break;
  }
  std::cout.flush();
  return checkLimits(*rows, limits);
}

} // namespace
} // namespace gpt2c

int main(int argc, char **argv) {
  gpt2c::CommandLine commandLine;
  commandLine.flags.parse(argc, argv);
  return gpt2c::runTool([&] { return gpt2c::run(commandLine); });
}

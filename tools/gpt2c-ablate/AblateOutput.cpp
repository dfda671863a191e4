// The result of an ablation as a table, as data and as a picture.
#include "tools/gpt2c-ablate/Ablate.h"

#include "passes/quantize/Precision.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

#include <cmath>

namespace gpt2c {

static std::string number(double v, const std::string &style) {
  return llvm::formatv(style.c_str(), v).str();
}

/// Title and value of each column.
static std::vector<std::pair<std::string, std::string>> columns(const Ablation &row) {
  auto counted = [](const AblatedStep &s, std::string text) {
    return s.launches ? std::move(text) : std::string("-");
  };
  auto step = [&](const AblatedStep &s, const std::string &of) {
    return std::vector<std::pair<std::string, std::string>>{
        {of + " launches", counted(s, std::to_string(s.launches))},
        {of + " MB", counted(s, number(s.bytes / 1e6, "{0:f1}"))},
        {of + " ms", number(s.milliseconds, "{0:f4}")}};
  };
  std::vector<std::pair<std::string, std::string>> out{{"compiled with", row.what},
                                                       {"KV state", row.hasKvState ? "yes" : "no"}};
  for (auto &c : step(row.prefill, "prefill"))
    out.push_back(c);
  for (auto &c : step(row.decode, "decode"))
    out.push_back(c);
  return out;
}

static void printJson(const AblationResult &result, const AblateOptions &options,
                      llvm::raw_ostream &os) {
  auto step = [](const AblatedStep &s) {
    return llvm::json::Object{{"launches", s.launches}, {"bytes", s.bytes}, {"ms", s.milliseconds}};
  };
  llvm::json::Array array;
  for (const Ablation &row : result.rows)
    array.push_back(llvm::json::Object{{"compiled_with", row.what},
                                       {"kv_state", row.hasKvState},
                                       {"prefill", step(row.prefill)},
                                       {"decode", step(row.decode)}});
  llvm::json::Object object{
      {"model", options.model},   {"precision", precisionName(options.precision)},
      {"prompt", options.prompt}, {"depth", options.depth},
      {"rows", std::move(array)}, {"without_effect", llvm::json::Array(result.withoutEffect)}};
  os << llvm::formatv("{0:2}", llvm::json::Value(std::move(object))) << "\n";
}

void printRow(const Ablation &row, bool first, Format format, llvm::raw_ostream &os) {
  if (format == Format::Json)
    return;
  bool md = format == Format::Markdown;
  auto line = [&](llvm::ArrayRef<std::string> cells) {
    os << (md ? "| " : "") << llvm::join(cells, md ? " | " : ",") << (md ? " |\n" : "\n");
  };
  std::vector<std::string> titles, rule, cells;
  for (auto &[title, value] : columns(row)) {
    rule.push_back(titles.size() < 2 ? "---" : "---:");
    titles.push_back(title);
    cells.push_back(value);
  }
  if (first) {
    line(titles);
    if (md)
      line(rule);
  }
  line(cells);
  os.flush();
}

void printRest(const AblationResult &result, const AblateOptions &options, Format format,
               llvm::raw_ostream &os) {
  if (format == Format::Json)
    return printJson(result, options, os);
  bool md = format == Format::Markdown;
  if (md)
    os << "\nOne sequence: a prefill of " << options.prompt << " tokens, and a decode step behind "
       << options.depth
       << " tokens, which without a KV state runs the whole graph over all of them. Each row has "
          "the fusions of the rows before it. MB: the fewest bytes of all launches (on the CPU: of "
          "all ops); ms: the device's clock (on the CPU: the host's), medians of "
       << options.repetitions << ".\n";
  if (md && !result.withoutEffect.empty())
    os << "\nWithout effect on this model here: " << llvm::join(result.withoutEffect, ", ")
       << ".\n";
}

void writeSvg(llvm::ArrayRef<Ablation> rows, const AblateOptions &options, llvm::raw_ostream &os) {
  constexpr int label = 220, bar = 300, gap = 90, height = 22, top = 60;
  const int width = label + 2 * (bar + gap), bottom = top + height * int(rows.size()),
            total = bottom + 30;
  os << llvm::formatv("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" "
                      "width=\"{0}\" height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
                      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
                      width, total);
  // Whole decades around all times: from the first row to the last they fall by more than one.
  double least = 1e300, most = 0;
  for (const Ablation &row : rows)
    for (const AblatedStep *step : {&row.prefill, &row.decode}) {
      least = std::min(least, std::max(step->milliseconds, 1e-6));
      most = std::max(most, step->milliseconds);
    }
  const int first = int(std::floor(std::log10(least))),
            last = std::max(first + 1, int(std::ceil(std::log10(std::max(most, 1e-6)))));
  auto lengthOf = [&](double ms) {
    return bar * (std::log10(std::max(ms, 1e-6)) - first) / (last - first);
  };
  const std::string titles[2] = {
      llvm::formatv("prefill of {0} tokens, ms (logarithmic)", options.prompt).str(),
      llvm::formatv("decode step behind {0} tokens, ms", options.depth).str()};
  for (int side : {0, 1}) {
    int x = label + side * (bar + gap);
    os << llvm::formatv("<text x=\"{0}\" y=\"40\" font-weight=\"bold\">{1}</text>\n", x,
                        titles[side]);
    for (int decade = first; decade <= last; ++decade) {
      double ms = std::pow(10, decade);
      os << llvm::formatv(
          "<line x1=\"{0:f1}\" y1=\"{1}\" x2=\"{0:f1}\" y2=\"{2}\" "
          "stroke=\"#d0d7de\"/>\n<text x=\"{0:f1}\" y=\"{3}\" fill=\"#57606a\" "
          "text-anchor=\"middle\">{4}</text>\n",
          x + lengthOf(ms), top - 6, bottom, bottom + 16,
          number(ms, decade < 0 ? "{0:f" + std::to_string(-decade) + "}" : "{0:f0}"));
    }
    for (auto [i, row] : llvm::enumerate(rows)) {
      double ms = side ? row.decode.milliseconds : row.prefill.milliseconds;
      int y = top + height * int(i);
      double length = std::max(1.0, lengthOf(ms));
      if (side == 0)
        os << llvm::formatv("<text x=\"{0}\" y=\"{1}\" text-anchor=\"end\">{2}</text>\n", label - 8,
                            y + 12, row.what);
      os << llvm::formatv("<rect x=\"{0}\" y=\"{1}\" width=\"{2:f1}\" height=\"16\" "
                          "fill=\"#4878a8\"/>\n<text x=\"{3:f1}\" y=\"{4}\">{5:f3}</text>\n",
                          x, y, length, x + length + 5, y + 12, ms);
    }
  }
  os << "</svg>\n";
}

} // namespace gpt2c

#include "tools/gpt2c-compare/Compare.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

namespace gpt2c {

namespace {

constexpr int left = 70, right = 20, top = 20, height = 300, bottom = 40;
/// Errors below are drawn there.
constexpr double least = 1e-9;

std::string escaped(llvm::StringRef text) {
  std::string out;
  llvm::raw_string_ostream os(out);
  llvm::printHTMLEscaped(text, os);
  return out;
}

class Plot {
public:
  explicit Plot(const Comparison &c) : c_(c), width_(std::max(400, 12 * int(c.errors.size()))) {
    double most = c.tolerance;
    for (const ValueError &e : c.errors)
      for (double x : {e.total.relative, c.judged(e)})
        if (std::isfinite(x))
          most = std::max(most, x);
    last_ = int(std::ceil(std::log10(std::max(most, 10 * least))));
  }

  void write(llvm::raw_ostream &os) const {
    os << llvm::formatv("<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
                        "font-family=\"sans-serif\" font-size=\"11\">\n",
                        left + width_ + right, top + height + bottom);
    for (int decade = first_; decade <= last_; ++decade)
      os << llvm::formatv("<line x1=\"{0}\" y1=\"{1:f1}\" x2=\"{2}\" y2=\"{1:f1}\" "
                          "stroke=\"#d0d7de\"/><text x=\"{3}\" y=\"{4:f1}\" text-anchor=\"end\" "
                          "fill=\"#57606a\">1e{5}</text>\n",
                          left, y(std::pow(10, decade)), left + width_, left - 6,
                          y(std::pow(10, decade)) + 4, decade);
    os << llvm::formatv("<line x1=\"{0}\" y1=\"{1:f1}\" x2=\"{2}\" y2=\"{1:f1}\" "
                        "stroke=\"#cf222e\" stroke-dasharray=\"4 3\"/>\n",
                        left, y(c_.tolerance), left + width_);
    os << "<polyline fill=\"none\" stroke=\"#57606a\" points=\"";
    for (auto [i, e] : llvm::enumerate(c_.errors))
      if (e.standsFor)
        os << llvm::formatv("{0:f1},{1:f1} ", x(i), y(e.total.relative));
    os << "\"/>\n";
    for (auto [i, e] : llvm::enumerate(c_.errors))
      if (e.standsFor && (e.hasAdded || c_.totals))
        os << llvm::formatv(
            "<circle cx=\"{0:f1}\" cy=\"{1:f1}\" r=\"3.5\" fill=\"{2}\"><title>step {3}: {4}, "
            "{5}</title></circle>\n",
            x(i), y(c_.judged(e)), c_.isOver(e) ? "#cf222e" : "#0969da", e.step,
            escaped(e.value->def()->describe()), threeDigits(c_.judged(e)));
    os << llvm::formatv("<text x=\"{0}\" y=\"{1}\" fill=\"#57606a\">values in the order of their "
                        "steps</text>\n</svg>\n",
                        left, top + height + 28);
  }

private:
  double x(size_t i) const {
    return left + (double(i) + 0.5) * width_ / double(std::max<size_t>(1, c_.errors.size()));
  }
  double y(double error) const {
    const double decades = std::isfinite(error) ? std::log10(std::max(error, least)) : last_;
    return top + height * (last_ - decades) / (last_ - first_);
  }

  const Comparison &c_;
  int width_, first_ = -9, last_;
};

} // namespace

void writePage(const Comparison &c, llvm::raw_ostream &os) {
  os << "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>gpt2c-compare: "
     << escaped(c.plan)
     << "</title>\n<style>body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}"
        "td,th{padding:2px 10px;text-align:left;border-bottom:1px solid #d0d7de}"
        "td.n{text-align:right;font-variant-numeric:tabular-nums}tr.over{background:#ffebe9}"
        "figure{overflow-x:auto;margin:1em 0}pre{background:#f6f8fa;padding:1em}</style></head>\n"
     << "<body><h1>" << escaped(c.plan) << "</h1>\n<p>@" << c.call.function << " on "
     << escaped(c.device) << ", " << c.call.batch() << " x " << c.call.tokens()
     << " tokens, against " << escaped(c.against) << "</p>\n<pre>" << escaped(describeFirst(c))
     << "</pre>\n<figure>";
  Plot(c).write(os);
  os << "<figcaption>Dots: "
     << (c.totals ? "the error of a tensor" : "the error that a step adds, of a row or a channel")
     << "; line: all errors up to there; dashed: the tolerance.</figcaption></figure>\n<table>"
        "<tr><th>step<th>op<th>ONNX<th>adds<th>channel<th>total<th>NaN<th>infinite</tr>\n";
  for (const ValueError &e : c.errors) {
    auto cell = [&](bool known, double v) {
      return "<td class=\"n\">" + (known ? threeDigits(v) : std::string("-"));
    };
    os << "<tr" << (c.isOver(e) ? " class=\"over\"" : "") << "><td class=\"n\">" << e.step << "<td>"
       << escaped(opName(*e.value)) << "<td>" << escaped(onnxName(*e.value))
       << cell(e.hasAdded, e.added.relative) << cell(e.hasAdded, e.channel)
       << cell(e.standsFor, e.total.relative) << "<td class=\"n\">" << e.nans << "<td class=\"n\">"
       << e.infinities << "</tr>\n";
  }
  os << "</table></body></html>\n";
}

} // namespace gpt2c

// report-rope: a remark for each kind of rotary embedding in a graph: what it turns, by which
// frequencies, and at how many positions that was compared. It changes nothing.
#include "passes/Pass.h"
#include "passes/RopeForm.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

namespace gpt2c {

/// Four digits, without an exponent where the number is not small.
static std::string number(double v) {
  if (v == 0)
    return "0";
  double last = std::pow(10.0, std::floor(std::log10(std::abs(v))) - 3);
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format(v < 0.01 ? "%.4g" : "%.10g",
                                                 std::round(v / last) * last);
  return text;
}

/// "base 10000" where frequency k is base^(-k / r), else the first and the last.
static std::string describe(const std::vector<double> &frequencies) {
  double r = double(frequencies.size());
  double base = r > 1 ? std::pow(frequencies[1], -r) : 0;
  bool geometric = r > 1 && std::isfinite(base);
  for (size_t k = 0; geometric && k < frequencies.size(); ++k)
    geometric = std::abs(frequencies[k] * std::pow(base, double(k) / r) - 1) < 1e-3;
  return geometric ? "base " + number(base)
                   : "frequencies from " + number(frequencies.front()) + " to " +
                         number(frequencies.back());
}

static std::string describe(const RopeForm &form) {
  int64_t r = form.frequencies.size(), width = *form.x->type.shape.back().constant();
  std::string text =
      llvm::formatv("{0} of {1} elements, {2}", form.interleaved ? "neighbouring pairs" : "halves",
                    2 * r, describe(form.frequencies));
  if (2 * r < width)
    text += llvm::formatv(", {0} elements behind them stay", width - 2 * r);
  if (std::abs(form.scale - 1) > 1e-6)
    text += ", times " + number(form.scale);
  return text + llvm::formatv("; equal at all of {0} positions", form.positionsCompared).str();
}

llvm::Error reportRope(PassContext &ctx) {
  for (auto &f : ctx.module().functions) {
    llvm::DenseSet<const Op *> inside;
    llvm::MapVector<llvm::StringRef, llvm::SmallVector<Op *>> kinds;
    llvm::SmallVector<Op *> ops;
    for (auto &op : f->ops())
      ops.push_back(op.get());
    for (Op *op : llvm::reverse(ops)) {
      std::string why;
      if (inside.contains(op))
        continue;
      auto form = ropeForm(*f, op, ctx.options().maxContext, why);
      if (form) {
        inside.insert(form->ops.begin(), form->ops.end());
        kinds[intern(describe(*form))].push_back(op);
      } else if (!why.empty())
        ctx.missed("rope: " + op->describe() + " turns pairs of elements, but " + why,
                   op->locations)
            .of("rope")
            .after("pairs of elements")
            .stoppedBy({why, op});
    }
    for (auto &[kind, roots] : kinds)
      ctx.note("rope: " + llvm::Twine(roots.size()) + " rotary embedding" +
                   (roots.size() == 1 ? ": " : "s: ") + kind,
               roots.back()->locations);
  }
  return llvm::Error::success();
}

} // namespace gpt2c

// check-numbers: remarks on what the graph's numbers lose in any plan: weights that hold NaN or
// infinities, floating-point types that the plan does not compute in; and on what is decided by
// rounding. The graph stays as it is.
#include "passes/Numbers.h"
#include "passes/Pass.h"
#include "passes/proof/bounds/RoundedDecisions.h"
#include "passes/quantize/Precision.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"

#include <cmath>

namespace gpt2c {

using Nodes = llvm::SetVector<llvm::StringRef>;

/// Masks are written with infinities: beside them such a tensor has one other value, or none.
static bool isMask(const Tensor &t) {
  double other = 0;
  bool found = false;
  for (int64_t i = 0, n = t.count(); i < n; ++i) {
    const double v = t.asDouble(i);
    if (!std::isfinite(v))
      continue;
    if (found && v != other)
      return false;
    other = v;
    found = true;
  }
  return true;
}

static std::string shareOf(int64_t count, const char *what, const Tensor &t) {
  return std::to_string(count) + " " + what + " among its " + std::to_string(t.count()) +
         " elements";
}

static void checkConstant(PassContext &ctx, const Op &op) {
  const Tensor &t = op.constant;
  const NumberCounts c = countNumbers(t);
  Nodes nodes;
  for (const Use &u : op.result()->uses())
    nodes.insert(u.op->locations.begin(), u.op->locations.end());
  if (c.nan)
    ctx.note(constantName(op) + " holds " + shareOf(c.nan, "NaN", t) +
                 "; what is computed from them is NaN, too",
             nodes.getArrayRef());
  if (c.infinite && !isMask(t))
    ctx.note(constantName(op) + " holds " + shareOf(c.infinite, "infinities", t) +
                 "; sums with them are infinite or NaN",
             nodes.getArrayRef());
}

/// Bytes of the floating-point constants, by element type.
struct WeightBytes {
  int64_t narrow = 0, all = 0;
  bool areNarrow() const { return narrow * 2 > all; }
};

/// What the plan's precision does to the types that the graph computes in: one remark each.
static void checkTypes(PassContext &ctx, const Function &f, const WeightBytes &weights) {
  const DType precision = ctx.options().precision;
  Nodes wide, casts;
  unsigned wideOps = 0, castOps = 0;
  DType castTo = DType::F16;
  for (const auto &op : f.ops()) {
    if (op->is(OpCode::Constant) || op->numResults() == 0)
      continue;
    if (op->result()->type.dtype == DType::F64) {
      ++wideOps;
      wide.insert(op->locations.begin(), op->locations.end());
    }
    if (!op->is(OpCode::Cast) || weights.areNarrow())
      continue;
    const DType from = op->operand(0)->type.dtype, to = op->result()->type.dtype;
    if (isFloat(from) && !isNarrow(from) && isNarrow(to) && to != precision) {
      ++castOps;
      castTo = to;
      casts.insert(op->locations.begin(), op->locations.end());
    }
  }
  if (wideOps)
    ctx.note(llvm::Twine(wideOps) + (wideOps == 1 ? " op computes" : " ops compute") +
                 " in f64; the plan computes in " + precisionName(precision) +
                 " what they give, and keeps of it as many digits",
             wide.getArrayRef());
  if (castOps)
    ctx.note(llvm::Twine(castOps) + (castOps == 1 ? " cast" : " casts") + " to " +
                 dtypeName(castTo) + (castOps == 1 ? " is" : " are") +
                 " dropped: the plan computes in " + precisionName(precision) +
                 ", without the rounding they stand for",
             casts.getArrayRef());
}

/// Windows and switches at a length that other runtimes may see elsewhere.
static void checkDecisions(PassContext &ctx, Function &f) {
  for (const RoundedDecision &d : roundedDecisions(f, ctx.options().maxContext)) {
    const Value *v = d.op->operand(0);
    const llvm::StringRef type = dtypeName(v->type.dtype);
    ctx.missed(d.op->describe() + " is decided by rounding: " + d.where + " it gives " +
                   shortNumber(d.given) + " in " + type + ", and " + shortNumber(d.exact) +
                   " where nothing is rounded. The plan has what " + type +
                   " gives, as the graph says; a runtime that computes " + type +
                   " in single precision may not",
               d.op->locations)
        .of("half precision");
  }
}

llvm::Error checkNumbers(PassContext &ctx) {
  for (const auto &f : ctx.module().functions) {
    WeightBytes weights;
    for (const auto &op : f->ops()) {
      if (!op->is(OpCode::Constant) || !op->constant.valid() || !isFloat(op->constant.dtype()))
        continue;
      const int64_t bytes = int64_t(op->constant.bytes());
      weights.all += bytes;
      if (isNarrow(op->constant.dtype()))
        weights.narrow += bytes;
      checkConstant(ctx, *op);
    }
    checkTypes(ctx, *f, weights);
    checkDecisions(ctx, *f);
  }
  return llvm::Error::success();
}

} // namespace gpt2c

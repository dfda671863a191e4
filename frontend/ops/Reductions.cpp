// Reductions. What is composed of a map and a reduction keeps the map where there are no axes.
#include "frontend/Builders.h"

#include <numeric>

namespace gpt2c::onnxops {

namespace {

/// The axes of a reduction, as an attribute or as the second input; none for the identity.
struct Reduction {
  std::vector<int64_t> axes;
  bool keepDims = true;

  static std::optional<Reduction> of(NodeLowering &n, bool axesAreInput) {
    Value *x = n.in(0);
    Reduction r;
    r.keepDims = n.intAttr("keepdims", 1);
    std::optional<std::vector<int64_t>> axes;
    if (!axesAreInput)
      axes = n.intsAttr("axes");
    else if (n.has(1))
      axes = n.requiredConstants(1);
    if (n.failed())
      return std::nullopt;
    if (!axes || axes->empty()) {
      axes.emplace();
      if (!axesAreInput || !n.intAttr("noop_with_empty_axes", 0)) {
        axes->resize(x->type.rank());
        std::iota(axes->begin(), axes->end(), 0);
      }
    }
    r.axes = std::move(*axes);
    return r;
  }

  Value *apply(NodeLowering &n, OpCode code, Value *x) const {
    return axes.empty() ? x : n.reduce(code, x, axes, keepDims);
  }
};

} // namespace

void reduceWith(NodeLowering &n, OpCode code, bool axesAreInput) {
  if (auto r = Reduction::of(n, axesAreInput))
    n.out(r->apply(n, code, n.in(0)));
}

/// log(sum(exp(x))) = m + log(sum(exp(x - m))) with the largest x of a row as m, 0 where that is
/// not finite.
static Value *logSumExp(NodeLowering &n, const Reduction &r, Value *x) {
  if (r.axes.empty())
    return x;
  auto shift = [&](Value *largest) {
    return n.where(n.emit(OpCode::IsInf, {largest}), n.scalarLike(0, largest), largest);
  };
  Value *largest = shift(n.reduce(OpCode::ReduceMax, x, r.axes, true));
  Value *sum = r.apply(n, OpCode::ReduceSum, n.emit(OpCode::Exp, {n.sub(x, largest)}));
  if (!r.keepDims)
    largest = shift(r.apply(n, OpCode::ReduceMax, x));
  return n.add(n.emit(OpCode::Log, {sum}), largest);
}

void reduceComposed(NodeLowering &n, ComposedReduction kind, bool axesAreInput) {
  auto r = Reduction::of(n, axesAreInput);
  if (!r)
    return;
  Value *x = n.in(0);
  auto sum = [&](Value *v) { return r->apply(n, OpCode::ReduceSum, v); };
  switch (kind) {
  case ComposedReduction::L1:
    return n.out(sum(n.emit(OpCode::Abs, {x})));
  case ComposedReduction::L2:
    return n.out(n.emit(OpCode::Sqrt, {sum(n.mul(x, x))}));
  case ComposedReduction::SumSquare:
    return n.out(sum(n.mul(x, x)));
  case ComposedReduction::LogSum:
    return n.out(n.emit(OpCode::Log, {sum(x)}));
  case ComposedReduction::LogSumExp:
    return n.out(logSumExp(n, *r, x));
  }
}

} // namespace gpt2c::onnxops

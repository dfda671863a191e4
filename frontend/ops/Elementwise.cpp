#include "frontend/Builders.h"

namespace gpt2c::onnxops {

void castOp(NodeLowering &n) {
  if (auto to = n.dtypeAttr("to"))
    n.out(n.emit(OpCode::Cast, {n.in(0)}, {{"to", *to}}));
}

void castLike(NodeLowering &n) {
  Value *x = n.in(0), *like = n.in(1);
  if (!n.failed())
    n.out(n.emit(OpCode::Cast, {x}, {{"to", like->type.dtype}}));
}

static Value *clamp(NodeLowering &n, Value *x, Value *low, Value *high) {
  if (low)
    x = n.emit(OpCode::Max, {x, low});
  if (high)
    x = n.emit(OpCode::Min, {x, high});
  return x;
}

void clipByAttr(NodeLowering &n) {
  Value *x = n.in(0);
  Value *low = n.hasAttr("min") ? n.scalarLike(n.floatAttr("min", 0), x) : nullptr;
  Value *high = n.hasAttr("max") ? n.scalarLike(n.floatAttr("max", 0), x) : nullptr;
  n.out(clamp(n, x, low, high));
}

void clip(NodeLowering &n) { n.out(clamp(n, n.in(0), n.optional(1), n.optional(2))); }

/// Inference: y = x, and a mask that keeps everything.
static void keepAll(NodeLowering &n) {
  Value *x = n.in(0);
  n.out(x);
  if (n.wants(1))
    n.out(1, n.emit(OpCode::ConstantOfShape, {n.shapeOf(x)},
                    {{"value", 1.0}, {"dtype", DType::Bool}}));
}

void dropoutByAttr(NodeLowering &n) {
  if (n.wants(1)) {
    n.unsupported("the mask as an output, which this opset leaves open, is not supported");
    return;
  }
  keepAll(n);
}

void dropout(NodeLowering &n) {
  if (n.has(2)) {
    auto training = n.requiredConstants(2);
    if (training && (training->size() != 1 || training->front() != 0)) {
      n.unsupported("training mode is not supported");
      return;
    }
  }
  keepAll(n);
}

void identity(NodeLowering &n) { n.out(n.in(0)); }

void isInf(NodeLowering &n) {
  Value *x = n.in(0);
  bool positive = n.intAttr("detect_positive", 1), negative = n.intAttr("detect_negative", 1);
  if (positive && negative)
    return n.out(n.emit(OpCode::IsInf, {x}));
  if (!positive && !negative)
    return n.out(
        n.emit(OpCode::ConstantOfShape, {n.shapeOf(x)}, {{"value", 0.0}, {"dtype", DType::Bool}}));
  double infinity = std::numeric_limits<double>::infinity();
  n.out(n.equal(x, n.scalarLike(positive ? infinity : -infinity, x)));
}

void mean(NodeLowering &n) {
  Value *sum = foldInputs<OpCode::Add>(n);
  n.out(n.numInputs() > 1 ? n.div(sum, n.scalarLike(n.numInputs(), sum)) : sum);
}

void mod(NodeLowering &n) {
  bool fmod = n.intAttr("fmod", 0);
  n.out(n.emit(OpCode::Mod, {n.in(0), n.in(1)}, {{"fmod", fmod}}));
}

/// The result has the base's type, whatever the exponent's.
void pow(NodeLowering &n) {
  Value *x = n.in(0), *y = n.in(1);
  if (n.failed())
    return;
  DType type = x->type.dtype;
  if (isInteger(type) && isFloat(y->type.dtype))
    return n.out(n.cast(n.emit(OpCode::Pow, {n.cast(x, y->type.dtype), y}), type));
  n.out(n.emit(OpCode::Pow, {x, n.cast(y, type)}));
}

/// To the nearest integer, halves to the even one: the part behind floor(x) is exact.
void roundOp(NodeLowering &n) {
  Value *x = n.in(0);
  Value *below = n.emit(OpCode::Floor, {x});
  Value *part = n.sub(x, below), *half = n.scalarLike(0.5, x), *one = n.scalarLike(1, x);
  Value *pairs = n.emit(OpCode::Floor, {n.mul(below, half)});
  Value *rest = n.sub(below, n.add(pairs, pairs));
  Value *isOdd = n.equal(rest, one), *isHalf = n.equal(part, half);
  Value *tie = n.emit(OpCode::And, {isHalf, isOdd});
  Value *up = n.emit(OpCode::Or, {n.emit(OpCode::Greater, {part, half}), tie});
  n.out(n.where(up, n.add(below, one), below));
}

} // namespace gpt2c::onnxops

// Activation functions that are formulas of primitive ops.
#include "frontend/Builders.h"

#include <numbers>

namespace gpt2c::onnxops {

/// x sigmoid(alpha x)
static void swishWith(NodeLowering &n, double alpha) {
  Value *x = n.in(0);
  Value *scaled = alpha == 1 ? x : n.mul(x, n.scalarLike(alpha, x));
  n.out(n.mul(x, n.emit(OpCode::Sigmoid, {scaled})));
}

void swish(NodeLowering &n) { swishWith(n, n.floatAttr("alpha", 1)); }

void quickGelu(NodeLowering &n) { swishWith(n, n.floatAttr("alpha", 1.702f)); }

/// max(0, min(1, alpha x + beta))
static Value *hardSigmoidOf(NodeLowering &n, Value *x, double alpha, double beta) {
  Value *slope = n.mul(x, n.scalarLike(alpha, x));
  Value *line = n.add(slope, n.scalarLike(beta, x));
  Value *capped = n.emit(OpCode::Min, {line, n.scalarLike(1, x)});
  return n.emit(OpCode::Max, {capped, n.scalarLike(0, x)});
}

void hardSigmoid(NodeLowering &n) {
  n.out(hardSigmoidOf(n, n.in(0), n.floatAttr("alpha", 0.2f), n.floatAttr("beta", 0.5f)));
}

/// x hard_sigmoid(x) with alpha = 1/6, beta = 1/2
void hardSwish(NodeLowering &n) {
  Value *x = n.in(0);
  n.out(n.mul(x, hardSigmoidOf(n, x, 1.0 / 6, 0.5)));
}

/// log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|))
static Value *softplusOf(NodeLowering &n, Value *x) {
  Value *small = n.emit(OpCode::Exp, {n.emit(OpCode::Neg, {n.emit(OpCode::Abs, {x})})});
  Value *rest = n.emit(OpCode::Log, {n.add(small, n.scalarLike(1, x))});
  return n.add(n.emit(OpCode::Relu, {x}), rest);
}

void softplus(NodeLowering &n) { n.out(softplusOf(n, n.in(0))); }

/// x tanh(softplus(x))
void mish(NodeLowering &n) {
  Value *x = n.in(0);
  n.out(n.mul(x, n.emit(OpCode::Tanh, {softplusOf(n, x)})));
}

/// max(x, 0) + slope min(x, 0)
static void leaky(NodeLowering &n, Value *slope) {
  Value *x = n.in(0);
  Value *positive = n.emit(OpCode::Relu, {x});
  Value *negative = n.emit(OpCode::Min, {x, n.scalarLike(0, x)});
  n.out(n.add(positive, n.mul(negative, slope)));
}

void leakyRelu(NodeLowering &n) { leaky(n, n.scalarLike(n.floatAttr("alpha", 0.01f), n.in(0))); }

void prelu(NodeLowering &n) { leaky(n, n.in(1)); }

/// gamma (max(x, 0) + alpha (exp(min(x, 0) / width) - 1))
static void exponential(NodeLowering &n, double alpha, double gamma, double width) {
  Value *x = n.in(0);
  Value *negative = n.emit(OpCode::Min, {x, n.scalarLike(0, x)});
  if (width != 1)
    negative = n.div(negative, n.scalarLike(width, x));
  Value *below = n.sub(n.emit(OpCode::Exp, {negative}), n.scalarLike(1, x));
  Value *scaled = n.mul(below, n.scalarLike(alpha, x));
  Value *y = n.add(n.emit(OpCode::Relu, {x}), scaled);
  n.out(gamma == 1 ? y : n.mul(y, n.scalarLike(gamma, x)));
}

void elu(NodeLowering &n) { exponential(n, n.floatAttr("alpha", 1), 1, 1); }

void celu(NodeLowering &n) {
  const double alpha = n.floatAttr("alpha", 1);
  exponential(n, alpha, 1, alpha);
}

void selu(NodeLowering &n) {
  constexpr float alpha = 1.67326319217681884765625F, gamma = 1.05070102214813232421875F;
  exponential(n, n.floatAttr("alpha", alpha), n.floatAttr("gamma", gamma), 1);
}

/// x / (1 + |x|)
void softsign(NodeLowering &n) {
  Value *x = n.in(0);
  n.out(n.div(x, n.add(n.emit(OpCode::Abs, {x}), n.scalarLike(1, x))));
}

/// With t = min(|x|, 1 / |x|), atan t = 2 atan(t / (1 + sqrt(1 + t^2))), twice, which leaves
/// arguments up to tan(pi / 16), where the series x - x^3 / 3 + x^5 / 5 - .. of five terms is off
/// by less than 2e-9; and atan |x| = pi / 2 - atan(1 / |x|) above 1.
void atanOp(NodeLowering &n) {
  Value *x = n.in(0), *one = n.scalarLike(1, x);
  Value *size = n.emit(OpCode::Abs, {x});
  Value *isLarge = n.emit(OpCode::Greater, {size, one});
  Value *t = n.where(isLarge, n.emit(OpCode::Reciprocal, {size}), size);
  for (int i = 0; i < 2; ++i) {
    Value *root = n.emit(OpCode::Sqrt, {n.add(one, n.mul(t, t))});
    t = n.div(t, n.add(one, root));
  }
  Value *square = n.mul(t, t), *sum = n.scalarLike(4.0 / 9, x);
  for (double c : {-4.0 / 7, 4.0 / 5, -4.0 / 3, 4.0})
    sum = n.add(n.mul(sum, square), n.scalarLike(c, x));
  Value *y = n.mul(t, sum);
  Value *above = n.sub(n.scalarLike(std::numbers::pi / 2, x), y);
  n.out(n.mul(n.where(isLarge, above, y), n.emit(OpCode::Sign, {x})));
}

void thresholdedRelu(NodeLowering &n) {
  Value *x = n.in(0);
  Value *above = n.emit(OpCode::Greater, {x, n.scalarLike(n.floatAttr("alpha", 1), x)});
  n.out(n.where(above, x, n.scalarLike(0, x)));
}

} // namespace gpt2c::onnxops

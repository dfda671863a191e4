// Activation functions that are formulas of primitive ops.
#include "frontend/Builders.h"

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

} // namespace gpt2c::onnxops

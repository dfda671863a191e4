#include "frontend/Builders.h"
#include "ir/Decimal.h"

#include <limits>
#include <numeric>

namespace gpt2c::onnxops {

static std::vector<int64_t> axesFrom(int64_t axis, unsigned rank) {
  std::vector<int64_t> axes(rank - axis);
  std::iota(axes.begin(), axes.end(), axis);
  return axes;
}

/// mean(x) and 1 / sqrt(mean((x - mean(x))^2) + epsilon) over the axes from `axis` on, in single
/// precision.
static void statistics(NodeLowering &n, Value *x, int64_t axis, double epsilon, Value *&mean,
                       Value *&inverse) {
  if (n.failed())
    return;
  if (x->type.dtype != DType::F64)
    x = n.cast(x, DType::F32);
  auto axes = axesFrom(axis, x->type.rank());
  mean = n.reduce(OpCode::ReduceMean, x, axes, true);
  Value *centred = n.sub(x, mean);
  Value *variance = n.reduce(OpCode::ReduceMean, n.mul(centred, centred), axes, true);
  inverse = n.emit(OpCode::Reciprocal,
                   {n.emit(OpCode::Sqrt, {n.add(variance, n.scalarLike(epsilon, variance))})});
}

/// y = (x - mean) / sqrt(variance + epsilon) * scale + bias; outputs `first` and up are mean and
/// inverse deviation.
static Value *layerNormOf(NodeLowering &n, Value *x, Value *scale, Value *bias, int64_t axis,
                          double epsilon, unsigned firstStatistic) {
  if (n.failed())
    return nullptr;
  llvm::SmallVector<Value *, 3> operands{x, scale};
  if (bias)
    operands.push_back(bias);
  Value *y =
      n.emit(OpCode::LayerNorm, operands, {{"axis", axis}, {"epsilon", decimalOf(float(epsilon))}});
  if (n.wants(firstStatistic) || n.wants(firstStatistic + 1)) {
    Value *mean = nullptr, *inverse = nullptr;
    statistics(n, x, n.axis(axis, x), epsilon, mean, inverse);
    n.out(firstStatistic, mean);
    n.out(firstStatistic + 1, inverse);
  }
  return y;
}

void layerNorm(NodeLowering &n) {
  Value *x = n.in(0), *scale = n.in(1);
  if (int64_t stash = n.intAttr("stash_type", 1); stash != 1)
    n.unsupported("stash_type " + llvm::Twine(stash) + " is not supported");
  n.out(layerNormOf(n, x, scale, n.optional(2), n.intAttr("axis", -1),
                    n.floatAttr("epsilon", 1e-5f), 1));
}

static Value *rmsNormOf(NodeLowering &n, Value *x, Value *scale, double epsilon) {
  return n.emit(OpCode::RmsNorm, {x, scale}, {{"epsilon", decimalOf(float(epsilon))}});
}

/// 1 / sqrt(mean(x^2) + epsilon) over the axes from `axis` on, in single precision.
static Value *inverseRms(NodeLowering &n, Value *x, int64_t axis, double epsilon) {
  if (n.failed())
    return nullptr;
  if (x->type.dtype != DType::F64)
    x = n.cast(x, DType::F32);
  auto axes = axesFrom(axis, x->type.rank());
  Value *square = n.reduce(OpCode::ReduceMean, n.mul(x, x), axes, true);
  Value *root = n.emit(OpCode::Sqrt, {n.add(square, n.scalarLike(epsilon, square))});
  return n.emit(OpCode::Reciprocal, {root});
}

/// x / sqrt(mean(x^2) + epsilon), in single precision and rounded to x's type, times a scale that
/// broadcasts. One scale for each element of the last axis is rms_norm.
void rmsNorm(NodeLowering &n) {
  Value *x = n.in(0), *scale = n.in(1);
  if (int64_t stash = n.intAttr("stash_type", 1); stash != 1)
    n.unsupported("stash_type " + llvm::Twine(stash) + " is not supported");
  unsigned axis = n.axis(n.intAttr("axis", -1), x);
  double epsilon = n.floatAttr("epsilon", 1e-5f);
  if (n.failed())
    return;
  // ONNX Runtime's SimplifiedLayerNormalization takes a scale of another type than x.
  DType dtype = x->type.dtype;
  scale = n.cast(scale, dtype);
  bool last = axis + 1 == x->type.rank();
  bool vector = scale && scale->type.rank() == 1 && scale->type.shape[0] == x->type.shape[axis];
  if (last && vector)
    n.out(rmsNormOf(n, x, scale, epsilon));
  Value *inverse = (last && vector) && !n.wants(1) ? nullptr : inverseRms(n, x, axis, epsilon);
  if (!(last && vector) && !n.failed()) {
    Value *normalised = n.mul(n.cast(x, inverse->type.dtype), inverse);
    n.out(n.mul(n.failed() ? nullptr : n.cast(normalised, dtype), scale));
  }
  if (n.wants(1))
    n.out(1, inverse);
}

/// x + skip + bias, also given out as output 3.
static Value *skipSum(NodeLowering &n, unsigned biasInput) {
  Value *sum = n.add(n.in(0), n.in(1));
  if (Value *bias = n.optional(biasInput))
    sum = n.add(sum, bias);
  n.out(3, sum);
  return sum;
}

void skipLayerNorm(NodeLowering &n) {
  Value *sum = skipSum(n, 4);
  n.out(layerNormOf(n, sum, n.in(2), n.optional(3), -1, n.floatAttr("epsilon", 1e-12f), 1));
}

void skipRmsNorm(NodeLowering &n) {
  if (n.wants(1) || n.wants(2))
    n.unsupported("mean and inverse deviation as outputs are not supported");
  Value *sum = skipSum(n, 3);
  n.out(rmsNormOf(n, sum, n.in(2), n.floatAttr("epsilon", 1e-12f)));
}

/// layer_norm(word[ids] + position[position ids or 0 .. seq - 1] + segment[segment ids]).
/// Inputs: ids, segment ids?, word, position, segment?, gamma, beta, mask?, position ids?.
/// Outputs: the normalised sum, the number of ones in each row of the mask, the sum.
void embedLayerNorm(NodeLowering &n) {
  Value *ids = n.in(0), *words = n.in(2), *positions = n.in(3), *gamma = n.in(5), *beta = n.in(6);
  auto lookUp = [&](Value *table, Value *index) {
    return n.emit(OpCode::Gather, {table, index}, {{"axis", int64_t(0)}});
  };
  Value *rows = n.optional(8) ? lookUp(positions, n.optional(8))
                              : n.unsqueeze(lookUp(positions, n.iota(n.sizeOf(ids, 1))), {0});
  Value *sum = n.add(lookUp(words, ids), rows);
  if (Value *segments = n.optional(1))
    sum = n.add(sum, lookUp(n.in(4), segments));
  n.out(layerNormOf(n, sum, gamma, beta, -1, n.floatAttr("epsilon", 1e-12f), 3));
  n.out(2, sum);
  if (!n.wants(1))
    return;
  if (Value *mask = n.optional(7))
    return n.out(1, n.reduce(OpCode::ReduceSum, n.cast(mask, DType::I32), {1}, false));
  n.out(1, n.emit(OpCode::ConstantOfShape, {n.sizeOf(ids, 0)},
                  {{"value", 0.0}, {"dtype", DType::I32}}));
}

// GELU in its spellings.

static Value *geluOf(NodeLowering &n, Value *x, const std::string &approximate) {
  return n.emit(OpCode::Gelu, {x}, {{"approximate", approximate}});
}

void gelu(NodeLowering &n) {
  std::string approximate = n.stringAttr("approximate", "none");
  if (approximate != "none" && approximate != "tanh")
    n.invalid("approximate must be none or tanh, not '" + approximate + "'");
  n.out(geluOf(n, n.in(0), approximate));
}

void contribGelu(NodeLowering &n) { n.out(geluOf(n, n.in(0), "none")); }

void biasGelu(NodeLowering &n) { n.out(geluOf(n, n.add(n.in(0), n.in(1)), "none")); }

void fastGelu(NodeLowering &n) {
  Value *x = n.in(0);
  if (Value *bias = n.optional(1))
    x = n.add(x, bias);
  n.out(geluOf(n, x, "tanh"));
}

// Softmax. Before opset 13 it saw a matrix: the axes from `axis` on were one row. On the last axis
// both are the same.

Value *logSoftmaxOf(NodeLowering &n, Value *x, int64_t axis) {
  Value *shifted = n.sub(x, n.reduce(OpCode::ReduceMax, x, {axis}, true));
  Value *sum = n.reduce(OpCode::ReduceSum, n.emit(OpCode::Exp, {shifted}), {axis}, true);
  return n.sub(shifted, n.emit(OpCode::Log, {sum}));
}

/// The attribute `axis`, with the last axis always spelled -1.
static int64_t softmaxAxis(NodeLowering &n, Value *x) {
  unsigned axis = n.axis(n.intAttr("axis", -1), x);
  return x && axis + 1 == x->type.rank() ? -1 : int64_t(axis);
}

void softmaxOp(NodeLowering &n) {
  Value *x = n.in(0);
  n.out(n.softmax(x, softmaxAxis(n, x)));
}

void logSoftmax(NodeLowering &n) {
  Value *x = n.in(0);
  n.out(logSoftmaxOf(n, x, softmaxAxis(n, x)));
}

static void flattened(NodeLowering &n, Value *(*apply)(NodeLowering &, Value *)) {
  Value *x = n.in(0);
  unsigned axis = n.axis(n.intAttr("axis", 1), x);
  if (n.failed())
    return;
  if (axis + 1 == x->type.rank())
    return n.out(apply(n, x));
  std::vector<int64_t> rows(axis, 0); // 0 copies the dimension
  rows.push_back(-1);
  Value *y = apply(n, n.reshape(x, rows));
  n.out(n.emit(OpCode::Reshape, {y, n.shapeOf(x)}, {{"allowzero", true}}));
}

void softmaxFlattened(NodeLowering &n) {
  flattened(n, [](NodeLowering &n, Value *x) { return n.softmax(x); });
}

void logSoftmaxFlattened(NodeLowering &n) {
  flattened(n, [](NodeLowering &n, Value *x) { return logSoftmaxOf(n, x, -1); });
}

/// x / |x| along an axis, by absolute values or squares; zeros stay zeros.
void lpNormalization(NodeLowering &n) {
  Value *x = n.in(0);
  const int64_t p = n.intAttr("p", 2), axis = n.axis(n.intAttr("axis", -1), x);
  if (n.failed())
    return;
  if (p != 1 && p != 2)
    return (void)n.invalid("p is " + llvm::Twine(p) + ", neither 1 nor 2");
  Value *parts = p == 1 ? n.emit(OpCode::Abs, {x}) : n.mul(x, x);
  Value *norm = n.reduce(OpCode::ReduceSum, parts, {axis}, true);
  if (p == 2)
    norm = n.emit(OpCode::Sqrt, {norm});
  Value *isZero = n.equal(norm, n.scalarLike(0, x));
  n.out(n.div(x, n.where(isZero, n.scalarLike(1, x), norm)));
}

} // namespace gpt2c::onnxops

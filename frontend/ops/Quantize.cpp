// Quantised operators of ONNX and of ONNX Runtime: each becomes affine_quantize, affine_dequantize
// and the operator it quantises.
#include "frontend/Builders.h"

#include <numeric>

namespace gpt2c::onnxops {

/// A scale or zero point of an axis: of one element for all, or a vector that broadcasts along
/// `axis` of a value of this rank.
static Value *along(NodeLowering &n, Value *v, unsigned rank, int64_t axis) {
  if (n.failed() || v->type.rank() == 0)
    return v;
  if (v->type.rank() > 1)
    return n.unsupported("a scale or zero point of shape " + v->type.str() +
                         " is not supported: it must be one for all or a vector for one axis");
  if (NodeLowering::staticDim(v, 0) == 1)
    return n.squeeze(v, {0});
  unsigned at = n.axisOf(axis, rank);
  if (n.failed())
    return nullptr;
  std::vector<int64_t> ones(rank - at - 1);
  std::iota(ones.begin(), ones.end(), 1);
  return ones.empty() ? v : n.unsqueeze(v, ones);
}

static Value *zero(NodeLowering &n, DType dtype) { return n.constant(Tensor::zeros(dtype, {})); }

/// x quantised along `axis`; a zero point that is absent is 0 in `dtype`.
static Value *quantised(NodeLowering &n, Value *x, Value *scale, Value *zeroPoint, DType dtype,
                        int64_t axis) {
  if (n.failed())
    return nullptr;
  unsigned rank = x->type.rank();
  scale = along(n, scale, rank, axis);
  zeroPoint = zeroPoint ? along(n, zeroPoint, rank, axis) : zero(n, dtype);
  if (n.failed())
    return nullptr;
  DType to = zeroPoint->type.dtype;
  if (to != DType::I8 && to != DType::U8)
    return n.unsupported("quantised values of " + dtypeName(to) +
                         " are not supported, only those of i8 and u8");
  if (!isFloat(x->type.dtype))
    x = n.cast(x, DType::F32);
  scale = n.cast(scale, DType::F32);
  return n.emit(OpCode::AffineQuantize, {x, scale, zeroPoint});
}

Value *dequantised(NodeLowering &n, Value *q, Value *scale, Value *zeroPoint, DType to,
                   int64_t axis) {
  if (n.failed())
    return nullptr;
  unsigned rank = q->type.rank();
  scale = along(n, scale, rank, axis);
  zeroPoint = zeroPoint ? along(n, zeroPoint, rank, axis) : zero(n, q->type.dtype);
  if (n.failed())
    return nullptr;
  scale = n.cast(scale, DType::F32);
  return n.emit(OpCode::AffineDequantize, {q, scale, zeroPoint}, {{"dtype", to}});
}

/// Inputs i, i + 1 and i + 2, a quantised value with scale and zero point, in f32. A vector of
/// scales is along `axis`.
static Value *dequantisedInput(NodeLowering &n, unsigned i, int64_t axis = -1) {
  Value *q = n.in(i), *scale = n.in(i + 1);
  return dequantised(n, q, scale, n.optional(i + 2), DType::F32, axis);
}
/// y as the result, quantised with the scale and zero point that are inputs i and i + 1; without a
/// zero point in the type of the input `like`.
static void outQuantised(NodeLowering &n, Value *y, unsigned i, unsigned like) {
  Value *scale = n.in(i), *same = n.in(like);
  if (!n.failed())
    n.out(quantised(n, y, scale, n.optional(i + 1), same->type.dtype, -1));
}

/// Scales or zero points [.., ceil(size / block), ..] of blocks along `axis` of q: one for each
/// element.
static Value *ofElements(NodeLowering &n, Value *v, const Value *q, unsigned axis, int64_t block) {
  if (n.failed())
    return nullptr;
  const auto size = NodeLowering::staticDim(q, axis);
  if (!size)
    return n.unsupported("blocks of an axis whose size is not known are not supported");
  Shape expected = q->type.shape;
  expected[axis] = (*size + block - 1) / block;
  if (v->type.shape != expected)
    return n.invalid("scales or zero points of shape " + v->type.str() + " for blocks of " +
                     llvm::Twine(block) + " of " + q->type.str());
  std::vector<int64_t> blocks(*size);
  for (int64_t i = 0; i < *size; ++i)
    blocks[i] = i / block;
  return n.emit(OpCode::Gather, {v, n.ints(blocks)}, {{"axis", int64_t(axis)}});
}

/// Blocks that divide an axis as an axis of their own: affine_dequantize of [.., blocks, block,
/// ..]. Null where they do not, or something is not known.
static Value *wholeBlocks(NodeLowering &n, const Quantised &v, DType to, unsigned axis,
                          int64_t block) {
  llvm::SmallVector<int64_t> whole, split, ofBlocks, scales;
  for (unsigned i = 0; i < v.q->type.rank(); ++i) {
    const auto size = NodeLowering::staticDim(v.q, i);
    if (!size || *size == 0 || (i == axis && *size % block != 0))
      return nullptr;
    whole.push_back(*size);
    scales.push_back(i == axis ? *size / block : *size);
    split.append(i == axis ? std::initializer_list<int64_t>{*size / block, block}
                           : std::initializer_list<int64_t>{*size});
    ofBlocks.append(i == axis ? std::initializer_list<int64_t>{*size / block, 1}
                              : std::initializer_list<int64_t>{*size});
  }
  for (const Value *p : {v.scale, v.zeroPoint})
    if (p && llvm::ArrayRef(p->type.shape) != llvm::ArrayRef(toDims(scales)))
      return nullptr;
  Value *q = n.reshape(v.q, split), *scale = n.cast(n.reshape(v.scale, ofBlocks), DType::F32),
        *zeroPoint = v.zeroPoint ? n.reshape(v.zeroPoint, ofBlocks) : zero(n, v.q->type.dtype);
  return n.reshape(n.emit(OpCode::AffineDequantize, {q, scale, zeroPoint}, {{"dtype", to}}), whole);
}

Value *dequantisedBlocks(NodeLowering &n, const Quantised &v, DType to, unsigned axis,
                         int64_t block) {
  if (n.failed())
    return nullptr;
  if (Value *y = wholeBlocks(n, v, to, axis, block))
    return y;
  Value *scale = n.cast(ofElements(n, v.scale, v.q, axis, block), DType::F32),
        *zeroPoint = v.zeroPoint ? ofElements(n, v.zeroPoint, v.q, axis, block)
                                 : zero(n, v.q ? v.q->type.dtype : DType::I8);
  return n.emit(OpCode::AffineDequantize, {v.q, scale, zeroPoint}, {{"dtype", to}});
}

void quantizeLinear(NodeLowering &n) {
  Value *x = n.in(0), *scale = n.in(1);
  DType dtype = DType::U8;
  if (n.intAttr("output_dtype", 0))
    if (auto given = n.dtypeAttr("output_dtype"))
      dtype = *given;
  if (int64_t size = n.intAttr("block_size", 0))
    return (void)n.unsupported("blocked quantisation (block_size " + llvm::Twine(size) +
                               ") is not supported: a scale must be one for all or a vector for "
                               "one axis");
  n.out(quantised(n, x, scale, n.optional(2), dtype, n.intAttr("axis", 1)));
}

void dequantizeLinear(NodeLowering &n) {
  Value *q = n.in(0), *scale = n.in(1);
  if (n.failed())
    return;
  DType to = scale->type.dtype;
  if (n.intAttr("output_dtype", 0))
    if (auto given = n.dtypeAttr("output_dtype"))
      to = *given;
  Value *zeroPoint = n.optional(2);
  const int64_t axis = n.intAttr("axis", 1), block = n.intAttr("block_size", 0);
  if (block < 0)
    return (void)n.invalid("block_size is negative");
  if (block == 0)
    return n.out(dequantised(n, q, scale, zeroPoint, to, axis));
  n.out(dequantisedBlocks(n, {q, scale, zeroPoint}, to, n.axis(axis, q), block));
}

namespace {
struct Range {
  Value *scale, *zeroPoint;
};
} // namespace

/// The scale and zero point with which 0 .. 255 just cover x and 0:
///   scale = (max(x, 0) - min(x, 0)) / 255, 1 where that is 0; zero_point = round(-min / scale)
static Range dynamicRange(NodeLowering &n, Value *x) {
  if (n.failed())
    return {};
  std::vector<int64_t> axes(x->type.rank());
  std::iota(axes.begin(), axes.end(), 0);
  Value *zeroFloat = n.scalar(0, DType::F32);
  Value *least = n.reduce(OpCode::ReduceMin, x, axes, false);
  Value *most = n.reduce(OpCode::ReduceMax, x, axes, false);
  Value *low = n.emit(OpCode::Min, {least, zeroFloat});
  Value *high = n.emit(OpCode::Max, {most, zeroFloat});
  Value *range = n.sub(high, low);
  Value *isNone = n.equal(range, zeroFloat), *one = n.scalar(1, DType::F32);
  Value *steps = n.div(range, n.scalar(255, DType::F32));
  Value *scale = n.where(isNone, one, steps);
  Value *negative = n.emit(OpCode::Neg, {low});
  return {scale, n.emit(OpCode::AffineQuantize, {negative, scale, zero(n, DType::U8)})};
}

void dynamicQuantizeLinear(NodeLowering &n) {
  Value *x = n.in(0);
  Range r = dynamicRange(n, x);
  n.out(0, n.emit(OpCode::AffineQuantize, {x, r.scale, r.zeroPoint}));
  n.out(1, r.scale);
  n.out(2, r.zeroPoint);
}

/// Input i as i32, less the zero point that is input `zeroPoint`. A vector is one for each row of
/// A, one for each column of B.
static Value *integers(NodeLowering &n, unsigned i, unsigned zeroPoint, bool rows) {
  Value *q = n.cast(n.in(i), DType::I32);
  if (!n.has(zeroPoint))
    return q;
  Value *z = n.cast(n.in(zeroPoint), DType::I32);
  if (!n.failed() && z->type.rank() <= 1)
    z = along(n, z, q->type.rank(), rows ? -2 : -1);
  return n.sub(q, z);
}

void matMulInteger(NodeLowering &n) {
  Value *a = integers(n, 0, 2, true), *b = integers(n, 1, 3, false);
  n.out(n.matmul(a, b));
}

void qLinearMatMul(NodeLowering &n) {
  Value *a = dequantisedInput(n, 0, -2), *b = dequantisedInput(n, 3);
  outQuantised(n, n.matmul(a, b), 6, 0);
}

//===-- ONNX Runtime --------------------------------------------------------------------------===//

static Value *withBias(NodeLowering &n, Value *y, unsigned bias) {
  return n.has(bias) ? n.add(y, n.in(bias)) : y;
}

/// a_scale b_scale (A - a_zero_point) (B - b_zero_point) + bias
void matMulIntegerToFloat(NodeLowering &n) {
  Value *qa = n.in(0), *qb = n.in(1), *sa = n.in(2), *sb = n.in(3);
  Value *a = dequantised(n, qa, sa, n.optional(4), DType::F32, -2);
  Value *b = dequantised(n, qb, sb, n.optional(5), DType::F32, -1);
  n.out(withBias(n, n.matmul(a, b), 6));
}

/// The same for floating-point A, quantised as DynamicQuantizeLinear does.
void dynamicQuantizeMatMul(NodeLowering &n) {
  Value *x = n.in(0), *qb = n.in(1), *sb = n.in(2);
  Range r = dynamicRange(n, x);
  Value *q = n.emit(OpCode::AffineQuantize, {x, r.scale, r.zeroPoint});
  Value *a = dequantised(n, q, r.scale, r.zeroPoint, DType::F32, -1);
  Value *b = dequantised(n, qb, sb, n.optional(3), DType::F32, -1);
  n.out(withBias(n, n.matmul(a, b), 4));
}

/// alpha A' B' + C, where C is i32 and its scale alpha a_scale b_scale; quantised where there is a
/// scale for the result.
void qGemm(NodeLowering &n) {
  bool transA = n.intAttr("transA", 0), transB = n.intAttr("transB", 0);
  Value *a = dequantisedInput(n, 0), *b = dequantisedInput(n, 3, transB ? 0 : 1);
  if (transA)
    a = n.transpose(a, {1, 0});
  if (transB)
    b = n.transpose(b, {1, 0});
  Value *y = n.matmul(a, b);
  double alpha = n.floatAttr("alpha", 1);
  if (alpha != 1)
    y = n.mul(y, n.scalar(alpha, DType::F32));
  if (Value *c = n.optional(6); c && !n.failed()) {
    Value *scale = n.mul(n.in(1), n.in(4));
    if (alpha != 1)
      scale = n.mul(scale, n.scalar(alpha, DType::F32));
    y = n.add(y, dequantised(n, c, scale, nullptr, DType::F32, -1));
  }
  if (n.has(7))
    outQuantised(n, y, 7, 0);
  else
    n.out(y);
}

void qLinearBinary(NodeLowering &n, OpCode code) {
  Value *a = dequantisedInput(n, 0), *b = dequantisedInput(n, 3);
  outQuantised(n, n.emit(code, {a, b}), 6, 0);
}

void qLinearSigmoid(NodeLowering &n) {
  outQuantised(n, n.emit(OpCode::Sigmoid, {dequantisedInput(n, 0)}), 3, 0);
}

void qLinearSoftmax(NodeLowering &n) {
  Value *x = dequantisedInput(n, 0);
  if (n.failed())
    return;
  unsigned axis = n.axis(n.intAttr("axis", -1), x);
  if (n.intAttr("opset", 13) < 13 && axis + 1 != x->type.rank()) {
    n.unsupported("a softmax over several axes, as before opset 13, is not supported");
    return;
  }
  outQuantised(n, n.softmax(x, axis), 3, 0);
}

} // namespace gpt2c::onnxops

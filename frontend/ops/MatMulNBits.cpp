// Weights of a few bits in blocks that share a scale: com.microsoft.MatMulNBits, a product with
// them, and com.microsoft.GatherBlockQuantized, rows of a table of them.
// docs/ContribOperators.md of ONNX Runtime.
#include "frontend/Builders.h"

#include <algorithm>
#include <numeric>

namespace gpt2c::onnxops {

namespace {

const Tensor *constantOf(const Value *v) {
  return v && v->def() && v->def()->is(OpCode::Constant) ? &v->def()->constant : nullptr;
}

/// Element i of bytes that hold several, the first one in the lowest bits.
int64_t unpacked(const Tensor &bytes, int64_t i, int64_t bits) {
  const int64_t each = 8 / bits;
  return static_cast<const uint8_t *>(bytes.raw())[i / each] >> (i % each * bits) &
         ((1 << bits) - 1);
}

/// w[n, k] = (q[n, k] - zero[n, k / block]) * scale[n, k / block], each row of q padded to blocks.
struct Blocks {
  int64_t inputs, outputs, bits, block;
  const Tensor *q = nullptr, *scales = nullptr, *zeros = nullptr;

  int64_t perRow() const { return (inputs + block - 1) / block; }
  int64_t zeroBytes() const { return (perRow() * bits + 7) / 8; }
  int64_t middle() const { return int64_t(1) << (bits - 1); }
  int64_t element(int64_t n, int64_t k) const {
    return unpacked(*q, n * perRow() * block + k, bits);
  }
  /// Integers are packed, each row for itself; numbers are not. Without zeros it is the middle.
  double zero(int64_t n, int64_t b) const {
    if (!zeros)
      return double(middle());
    if (zeros->dtype() != DType::U8)
      return zeros->asDouble(n * perRow() + b);
    return double(unpacked(*zeros, n * zeroBytes() * (8 / bits) + b, bits));
  }
  double scale(int64_t n, int64_t b) const { return scales->asDouble(n * perRow() + b); }
  bool fits() const {
    const int64_t count = outputs * perRow();
    return q->dtype() == DType::U8 && q->count() == count * block * bits / 8 &&
           isFloat(scales->dtype()) && scales->count() == count &&
           (!zeros ||
            zeros->count() == (zeros->dtype() == DType::U8 ? outputs * zeroBytes() : count));
  }

  /// With zero points that are no integers ONNX Runtime rounds otherwise, see floats().
  bool areIntegers() const { return !zeros || zeros->dtype() == DType::U8; }
  /// w[outputs, inputs], less rounding to `dtype`: affine_dequantize of [outputs, groups, group].
  /// Groups of the last block of a row may be fewer where it is cut off.
  Value *integers(NodeLowering &n, DType dtype) const {
    const int64_t group = std::gcd(block, inputs), groups = inputs / group;
    const DType type = bits <= 4 ? DType::I4 : DType::U8;
    const auto offset = double(type == DType::I4 ? middle() : 0);
    Tensor w = Tensor::zeros(type, {outputs, groups, group}),
           z = Tensor::zeros(type, {outputs, groups, 1}), s(DType::F32, {outputs, groups, 1});
    std::vector<double> row(static_cast<size_t>(inputs)), zero(static_cast<size_t>(groups));
    for (int64_t i = 0; i < outputs; ++i) {
      for (int64_t k = 0; k < inputs; ++k)
        row[size_t(k)] = double(element(i, k)) - offset;
      w.store(i * inputs, row);
      for (int64_t g = 0; g < groups; ++g) {
        zero[size_t(g)] = this->zero(i, g * group / block) - offset;
        s.data<float>()[i * groups + g] = float(scale(i, g * group / block));
      }
      z.store(i * groups, zero);
    }
    Value *q = n.constant(w), *scale = n.constant(s), *zeroPoint = n.constant(z);
    Value *wide = n.emit(OpCode::AffineDequantize, {q, scale, zeroPoint}, {{"dtype", dtype}});
    return n.reshape(wide, {outputs, inputs});
  }
  /// q scale - scale zero, where each product and the sum are rounded.
  Value *floats(NodeLowering &n, DType dtype) const {
    Tensor w(dtype, {outputs, inputs});
    std::vector<double> row(static_cast<size_t>(inputs));
    for (int64_t i = 0; i < outputs; ++i) {
      for (int64_t k = 0; k < inputs; ++k) {
        const auto s = float(scale(i, k / block)), off = s * float(zero(i, k / block)),
                   all = float(element(i, k)) * s;
        row[size_t(k)] = double(all - off);
      }
      w.store(i * inputs, row);
    }
    return n.constant(w);
  }
  Value *weights(NodeLowering &n, DType dtype) const {
    return areIntegers() ? integers(n, dtype) : floats(n, dtype);
  }
};

} // namespace

void matmulNBits(NodeLowering &n) {
  enum : unsigned { X, Q, Scales, Zeros, Order, Bias };
  Value *x = n.in(X);
  Blocks b{.inputs = n.requiredInt("K"),
           .outputs = n.requiredInt("N"),
           .bits = n.intAttr("bits", 4),
           .block = n.requiredInt("block_size"),
           .q = constantOf(n.in(Q)),
           .scales = constantOf(n.in(Scales)),
           .zeros = constantOf(n.optional(Zeros))};
  if (n.failed())
    return;
  if (n.has(Order))
    return (void)n.unsupported("weights in another order, g_idx, are not supported");
  if (b.bits != 2 && b.bits != 4 && b.bits != 8)
    return (void)n.unsupported("weights of " + llvm::Twine(b.bits) +
                               " bits are not supported, those of 2, 4 and 8 are");
  if (!b.q || !b.scales || (n.has(Zeros) && !b.zeros))
    return (void)n.unsupported("weights, scales and zero points have to be constants");
  constexpr int64_t most = 1 << 28;
  if (b.inputs < 1 || b.outputs < 1 || b.block < 1 || b.inputs > most || b.outputs > most ||
      b.block > most || b.block * b.bits % 8 != 0 || !b.fits())
    return (void)n.invalid("the bytes of weights, scales and zero points are not those of K, N, "
                           "bits and block_size");
  Value *y = n.matmul(x, n.transpose(b.weights(n, x->type.dtype), {1, 0}));
  n.out(n.has(Bias) ? n.add(y, n.in(Bias)) : y);
}

/// The elements of a constant of bytes that hold several along the last axis.
static Value *unpackedRows(NodeLowering &n, const Tensor &bytes, int64_t bits, int64_t columns) {
  llvm::SmallVector<int64_t> shape(bytes.shape());
  const int64_t perRow = shape.back(), rows = perRow ? bytes.count() / perRow : 0;
  shape.back() = columns;
  Tensor out(DType::U8, shape);
  for (int64_t i = 0; i < rows * columns; ++i)
    out.data<uint8_t>()[i] =
        uint8_t(unpacked(bytes, i / columns * perRow * (8 / bits) + i % columns, bits));
  return n.constant(out);
}

/// y = dequantised(data)[indices]. Of data in uint8 each byte holds one or two elements along the
/// last axis, whose zero point is the middle where none is given; else it is 0.
void gatherBlockQuantized(NodeLowering &n) {
  enum : unsigned { Data, Indices, Scales, Zeros };
  Value *q = n.in(Data), *indices = n.in(Indices), *scale = n.in(Scales), *zero = n.optional(Zeros);
  const int64_t bits = n.intAttr("bits", 4), block = n.intAttr("block_size", 128);
  if (n.failed())
    return;
  const Tensor *data = constantOf(q), *zeros = constantOf(zero);
  if (!data || (zero && !zeros))
    return (void)n.unsupported("a table and its zero points have to be constants");
  if ((bits != 4 && bits != 8) || block < 1 || data->rank() == 0 ||
      data->rank() != scale->type.rank())
    return (void)n.invalid(
        "bits are 4 or 8, block_size at least 1, and scales of the table's rank");
  const unsigned axis = n.axis(n.intAttr("quantize_axis", 1), q),
                 from = n.axis(n.intAttr("gather_axis", 0), q);
  const auto blocks = NodeLowering::staticDim(scale, axis);
  if (n.failed() || !blocks)
    return;
  // Types of four bits are one to a byte here; their scales tell them from bytes that hold two.
  const bool packed = bits == 4 && data->dtype() == DType::U8 && axis + 1 == data->rank() &&
                      (data->dim(-1) * 2 + block - 1) / block == *blocks;
  if (packed) {
    q = unpackedRows(n, *data, bits, data->dim(-1) * 2);
    if (zeros)
      zero = unpackedRows(n, *zeros, bits, *blocks);
  }
  if (!zero && data->dtype() == DType::U8 && (packed || bits == 8)) {
    Tensor middle(DType::U8,
                  constantOf(scale) ? constantOf(scale)->shape() : llvm::ArrayRef<int64_t>());
    std::fill_n(middle.data<uint8_t>(), middle.count(), uint8_t(1 << (bits - 1)));
    zero = n.constant(middle);
  }
  Value *table = dequantisedBlocks(n, {q, scale, zero}, scale->type.dtype, axis, block);
  n.out(n.emit(OpCode::Gather, {table, indices}, {{"axis", int64_t(from)}}));
}

} // namespace gpt2c::onnxops

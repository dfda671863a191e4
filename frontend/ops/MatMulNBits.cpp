// com.microsoft.MatMulNBits: a product with weights of a few bits, which become floating point.
// docs/ContribOperators.md of ONNX Runtime: com.microsoft.MatMulNBits.
#include "frontend/Builders.h"

namespace gpt2c::onnxops {

namespace {

const Tensor *constantOf(const Value *v) {
  return v && v->def() && v->def()->is(OpCode::Constant) ? &v->def()->constant : nullptr;
}

/// Element i of bytes that hold several, the first one in the lowest bits.
int64_t unpacked(const Tensor &bytes, int64_t i, int64_t bits) {
  const int64_t each = 8 / bits;
  return bytes.data<uint8_t>()[i / each] >> (i % each * bits) & ((1 << bits) - 1);
}

/// w[k, n] = (q[n, k] - zero[n, k / block]) * scale[n, k / block], each row of q padded to blocks.
struct Blocks {
  int64_t inputs, outputs, bits, block;
  const Tensor *q = nullptr, *scales = nullptr, *zeros = nullptr;

  int64_t perRow() const { return (inputs + block - 1) / block; }
  int64_t zeroBytes() const { return (perRow() * bits + 7) / 8; }
  /// Integers are packed, each row for itself; numbers are not. Without zeros it is the middle.
  double zero(int64_t n, int64_t b) const {
    if (!zeros)
      return double(int64_t(1) << (bits - 1));
    if (zeros->dtype() != DType::U8)
      return zeros->asDouble(n * perRow() + b);
    return double(unpacked(*zeros, n * zeroBytes() * (8 / bits) + b, bits));
  }
  bool fits() const {
    const int64_t count = outputs * perRow();
    return q->dtype() == DType::U8 && q->count() == count * block * bits / 8 &&
           isFloat(scales->dtype()) && scales->count() == count &&
           (!zeros ||
            zeros->count() == (zeros->dtype() == DType::U8 ? outputs * zeroBytes() : count));
  }
  Tensor weights(DType dtype) const {
    Tensor w(dtype, {inputs, outputs});
    std::vector<double> row(static_cast<size_t>(outputs));
    for (int64_t k = 0; k < inputs; ++k) {
      for (int64_t n = 0; n < outputs; ++n) {
        const int64_t b = k / block;
        const auto value = double(unpacked(*q, n * perRow() * block + k, bits));
        row[size_t(n)] = (value - zero(n, b)) * scales->asDouble(n * perRow() + b);
      }
      w.store(k * outputs, row);
    }
    return w;
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
  Value *y = n.matmul(x, n.constant(b.weights(x->type.dtype)));
  n.out(n.has(Bias) ? n.add(y, n.in(Bias)) : y);
}

} // namespace gpt2c::onnxops

#include "ir/ops/Common.h"

#include <type_traits>

namespace gpt2c {

static llvm::Error inferAffineDequantize(InferContext &c) {
  using enum ops::AffineDequantize::Operand;
  DType q = c.dtype(Q), to = c.op().dtypeAttr("dtype");
  if ((!isQuantised(q) && q != DType::U8 && q != DType::I32) || c.dtype(ZeroPoint) != q)
    return c.error("expects elements and zero point of i8, u8, i32, i4 or f8e4m3, both of one "
                   "type");
  if (c.dtype(Scale) != DType::F32)
    return c.error("expects scales of f32");
  if (!isFloat(to))
    return c.error("the result must be floating point");
  if (llvm::Error e = inferBroadcast(c))
    return e;
  c.setResult(to, Shape(c.op().result()->type.shape));
  return llvm::Error::success();
}

static int32_t difference(int32_t a, int32_t b) { return wrapSub<int32_t>(a, b); }
static float difference(Fp8 a, Fp8 b) { return float(a) - float(b); }

template <typename Stored, typename T> static llvm::Error evaluate(EvalContext &c, Tensor &out) {
  using enum ops::AffineDequantize::Operand;
  const DType stored = std::is_same_v<Stored, int8_t> ? DType::I8 : c.input(Q).dtype();
  const Tensor q = c.input(Q).cast(stored), scale = c.input(Scale).cast(out.dtype()),
               zero = c.input(ZeroPoint).cast(stored);
  T *y = out.data<T>();
  forEachBroadcastRun(
      out.shape(), {q.shape(), scale.shape(), zero.shape()},
      [&](int64_t first, int64_t n, llvm::ArrayRef<int64_t> at, llvm::ArrayRef<int64_t> step) {
        for (int64_t i = 0; i < n; ++i) {
          const auto steps = difference(q.data<Stored>()[at[0] + i * step[0]],
                                        zero.data<Stored>()[at[2] + i * step[2]]);
          y[first + i] = T(steps) * T(scale.data<T>()[at[1] + i * step[1]]);
        }
      });
  return llvm::Error::success();
}

static llvm::Error evalAffineDequantize(EvalContext &c) {
  using enum ops::AffineDequantize::Operand;
  const Tensor &q = c.input(Q);
  auto parameters = broadcastShapes(c.input(Scale).shape(), c.input(ZeroPoint).shape());
  auto shape = parameters ? broadcastShapes(q.shape(), *parameters) : std::nullopt;
  if (!shape)
    return c.error("shapes do not broadcast");
  Tensor &out = c.allocate(*shape);
  return dispatchFloat(c, out.dtype(), [&](auto tag) {
    using T = decltype(tag);
    switch (q.dtype()) {
    case DType::I4:
    case DType::I8:
      return evaluate<int8_t, T>(c, out);
    case DType::U8:
      return evaluate<uint8_t, T>(c, out);
    case DType::F8E4M3:
      return evaluate<Fp8, T>(c, out);
    default:
      return evaluate<int32_t, T>(c, out);
    }
  });
}

const OpInfo opAffineDequantize = {
    .code = OpCode::AffineDequantize,
    .mnemonic = "affine_dequantize",
    .summary = "y = (q - zero_point) scale",
    .operands = {{"q"}, {.name = "scale", .single = true}, {"zero_point"}},
    .attrs = {{"dtype", AttrKind::DType, Attr(DType::F32), "of the result"}},
    .traits = Elementwise,
    .infer = inferAffineDequantize,
    .eval = evalAffineDequantize,
    .cost = elementwiseCost,
};

} // namespace gpt2c

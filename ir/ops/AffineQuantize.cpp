#include "ir/ops/Common.h"
#include "ir/ops/Quantize.h"

namespace gpt2c {

static llvm::Error inferAffineQuantize(InferContext &c) {
  using enum ops::AffineQuantize::Operand;
  if (!isFloat(c.dtype(X)) || c.dtype(Scale) != DType::F32)
    return c.error("expects floating-point elements and scales of f32");
  if (c.dtype(ZeroPoint) != DType::I8 && c.dtype(ZeroPoint) != DType::U8)
    return c.error("the zero point must be i8 or u8");
  if (llvm::Error e = inferBroadcast(c))
    return e;
  c.setResult(c.dtype(ZeroPoint), Shape(c.op().result()->type.shape));
  return llvm::Error::success();
}

template <typename Q, typename T> static llvm::Error evaluate(EvalContext &c) {
  using enum ops::AffineQuantize::Operand;
  const Tensor &x = c.input(X), &scale = c.input(Scale), &zero = c.input(ZeroPoint);
  auto parameters = broadcastShapes(scale.shape(), zero.shape());
  auto shape = parameters ? broadcastShapes(x.shape(), *parameters) : std::nullopt;
  if (!shape)
    return c.error("shapes do not broadcast");
  Q *q = c.allocate(*shape).data<Q>();
  forEachBroadcastRun(
      *shape, {x.shape(), scale.shape(), zero.shape()},
      [&](int64_t first, int64_t n, llvm::ArrayRef<int64_t> at, llvm::ArrayRef<int64_t> step) {
        for (int64_t i = 0; i < n; ++i)
          q[first + i] =
              affineQuantised<Q>(static_cast<float>(x.data<T>()[at[0] + i * step[0]]),
                                 static_cast<float>(scale.data<T>()[at[1] + i * step[1]]),
                                 zero.data<Q>()[at[2] + i * step[2]]);
      });
  return llvm::Error::success();
}

static llvm::Error evalAffineQuantize(EvalContext &c) {
  using enum ops::AffineQuantize::Operand;
  if (c.input(X).dtype() != c.input(Scale).dtype())
    return c.error("operands differ in element type");
  return dispatchFloat(c, c.input(X).dtype(), [&](auto tag) {
    using T = decltype(tag);
    return c.input(ZeroPoint).dtype() == DType::I8 ? evaluate<int8_t, T>(c)
                                                   : evaluate<uint8_t, T>(c);
  });
}

const OpInfo opAffineQuantize = {
    .code = OpCode::AffineQuantize,
    .mnemonic = "affine_quantize",
    .summary = "q = saturate(round_half_even(x / scale) + zero_point), in single precision and in "
               "the type of zero_point; NaN gives the lowest",
    .operands = {{"x"}, {.name = "scale", .single = true}, {"zero_point"}},
    .traits = Elementwise,
    .infer = inferAffineQuantize,
    .eval = evalAffineQuantize,
    .cost = elementwiseCost,
};

} // namespace gpt2c

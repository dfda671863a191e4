#include "ir/ops/Common.h"
#include "ir/ops/Quantize.h"

namespace gpt2c {

static llvm::Error inferDequantize(InferContext &c) {
  using enum ops::Dequantize::Operand;
  if (!isQuantised(c.dtype(Q)) || c.rank(Q) == 0)
    return c.error("expects rows of i8 or f8e4m3");
  if (auto group = scaleGroup(c, Q, Scale); !group)
    return group.takeError();
  if (llvm::Error e = checkSteps(c, Q, Scale, Zero))
    return e;
  DType to = c.op().dtypeAttr("dtype");
  if (!isFloat(to))
    return c.error("the result must be floating point");
  c.setResult(to, Shape(c.shape(Q)));
  return llvm::Error::success();
}

static llvm::Error evalDequantize(EvalContext &c) {
  using enum ops::Dequantize::Operand;
  const Tensor &q = c.input(Q), &scale = c.input(Scale);
  int64_t size = scale.count() ? q.count() / scale.count() : 0;
  if (size * scale.count() != q.count() || (c.has(Zero) && c.input(Zero).count() != scale.count()))
    return c.error("shapes do not fit");
  Tensor &out = c.allocate(q.shape());
  std::vector<float> scales = floatElements(scale);
  const int8_t *zeros = c.has(Zero) ? c.input(Zero).data<int8_t>() : nullptr;
  return dispatchFloat(c, out.dtype(), [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    withSteps(q, [&](const auto *steps) {
      for (int64_t i = 0, n = q.count(); i < n; ++i)
        out.data<T>()[i] =
            (T(stepAt(steps, i)) - T(zeros ? zeros[i / size] : 0)) * T(scales[i / size]);
    });
    return llvm::Error::success();
  });
}

const OpInfo opDequantize = {
    .code = OpCode::Dequantize,
    .mnemonic = "dequantize",
    .summary = "y = (q - zero) s, with a scale, and a zero point if there is one, for each group "
               "of a row, or one scale for all",
    .operands = {{"q"}, {.name = "scale", .single = true}, {"zero", OperandSpec::Optional}},
    .attrs = {{"dtype", AttrKind::DType, Attr(DType::F32), "of the result"}},
    .infer = inferDequantize,
    .eval = evalDequantize,
    .cost = elementwiseCost,
};

} // namespace gpt2c

#include "ir/ops/Common.h"
#include "ir/ops/LayerNorm.h"
#include "ir/ops/Quantize.h"

namespace gpt2c {

static llvm::Error inferQuantizedLayerNorm(InferContext &c) {
  using enum ops::QuantizedLayerNorm::Operand;
  using enum ops::QuantizedLayerNorm::Result;
  if (llvm::Error e = inferLayerNorm(c, -1))
    return e;
  return inferQuantised(c, c.shape(X), YScale, "group", Q, YZero);
}

static llvm::Error evalQuantizedLayerNorm(EvalContext &c) {
  using enum ops::QuantizedLayerNorm::Operand;
  using enum ops::QuantizedLayerNorm::Result;
  auto y = evalLayerNorm(c, c.input(X), -1);
  if (!y)
    return y.takeError();
  return setQuantised(c, *y, YScale, "group", Q, YZero);
}

const OpInfo opQuantizedLayerNorm = {
    .code = OpCode::QuantizedLayerNorm,
    .mnemonic = "quantized_layer_norm",
    .summary = "(q, s): quantize of layer_norm, or rms_norm, over the last axis, with y_zero "
               "affine_quantize",
    .operands = {{"x"},
                 {"scale"},
                 {"bias", OperandSpec::Optional},
                 {.name = "y_scale", .kind = OperandSpec::Optional, .single = true},
                 {"y_zero", OperandSpec::Optional}},
    .attrs = {{"epsilon", AttrKind::Float, Attr(1e-5)},
              rmsAttr(),
              {"group", AttrKind::Int, Attr(int64_t(0)),
               "elements of a row of the result that share a scale; 0: all"},
              quantisedToAttr()},
    .numResults = 2,
    .infer = inferQuantizedLayerNorm,
    .eval = evalQuantizedLayerNorm,
    .cost =
        [](const Op &op) {
          return Cost{Dim(10) * elementCount(op.result()->type.shape), ioBytes(op)};
        },
};

} // namespace gpt2c

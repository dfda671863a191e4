#include "ir/Activations.h"
#include "ir/ops/Common.h"
#include "ir/ops/Quantize.h"
#include "ir/ops/QuantizedProduct.h"

namespace gpt2c {

static llvm::Error inferRequantizedLinear(InferContext &c) {
  using enum ops::RequantizedLinear::Operand;
  using enum ops::RequantizedLinear::Result;
  auto shape = inferQuantizedProduct(c, SumOffset);
  if (!shape)
    return shape.takeError();
  return inferQuantised(c, *shape, YScale, "y_group", Q, YZero);
}

static llvm::Error evalRequantizedLinear(EvalContext &c) {
  using enum ops::RequantizedLinear::Operand;
  using enum ops::RequantizedLinear::Result;
  auto y = evalQuantizedProduct(c, SumOffset);
  if (!y)
    return y.takeError();
  return setQuantised(c, *y, YScale, "y_group", Q, YZero);
}

const OpInfo opRequantizedLinear = {
    .code = OpCode::RequantizedLinear,
    .mnemonic = "requantized_linear",
    .summary = "(q, s): quantize of quantized_linear, with y_zero affine_quantize",
    .operands = {{"x"},
                 {"w"},
                 {.name = "w_scale", .single = true},
                 {.name = "x_scale", .kind = OperandSpec::Optional, .single = true},
                 {"bias", OperandSpec::Optional},
                 {.name = "y_scale", .kind = OperandSpec::Optional, .single = true},
                 {"y_zero", OperandSpec::Optional},
                 {"sum_offset", OperandSpec::Optional}},
    .attrs = {{"activation", AttrKind::String, Attr("none"), activationNames},
              {"x_group", AttrKind::Int, Attr(int64_t(-1)), "as in quantized_linear"},
              {"y_group", AttrKind::Int, Attr(int64_t(0)),
               "elements of a row of the result that share a scale; 0: all"},
              quantisedToAttr()},
    .numResults = 2,
    .infer = inferRequantizedLinear,
    .eval = evalRequantizedLinear,
    .cost = quantizedProductCost,
};

} // namespace gpt2c

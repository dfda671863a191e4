#include "ir/ops/Common.h"
#include "ir/ops/Quantize.h"
#include "ir/ops/QuantizedProduct.h"

namespace gpt2c {

constexpr unsigned YScale = Bias + 1;

static llvm::Error infer(InferContext &c) {
  auto shape = inferQuantizedProduct(c);
  if (!shape)
    return shape.takeError();
  return inferQuantised(c, *shape, YScale, "y_group");
}

static llvm::Error eval(EvalContext &c) {
  auto y = evalQuantizedProduct(c);
  if (!y)
    return y.takeError();
  return setQuantised(c, *y, YScale, "y_group");
}

const OpInfo opRequantizedLinear = {
    .code = OpCode::RequantizedLinear,
    .mnemonic = "requantized_linear",
    .summary = "(q, s): quantize of quantized_linear",
    .operands = {{"x"},
                 {"w"},
                 {.name = "w_scale", .single = true},
                 {.name = "x_scale", .kind = OperandSpec::Optional, .single = true},
                 {"bias", OperandSpec::Optional},
                 {.name = "y_scale", .kind = OperandSpec::Optional, .single = true}},
    .attrs = {{"activation", AttrKind::String, Attr("none"),
               "none, gelu_tanh, gelu_erf, relu, sigmoid or tanh"},
              {"x_group", AttrKind::Int, Attr(int64_t(-1)), "as in quantized_linear"},
              {"y_group", AttrKind::Int, Attr(int64_t(0)),
               "elements of a row of the result that share a scale; 0: all"}},
    .numResults = 2,
    .infer = infer,
    .eval = eval,
    .cost = quantizedProductCost,
};

} // namespace gpt2c

#include "ir/ops/Quantize.h"

#include "ir/ops/Common.h"

namespace gpt2c {

static llvm::Error inferQuantize(InferContext &c) {
  using enum ops::Quantize::Operand;
  if (!isFloat(c.dtype(X)))
    return c.error("expects floating-point elements");
  return inferQuantised(c, c.shape(X), Scale, "group");
}

const OpInfo opQuantize = {
    .code = OpCode::Quantize,
    .mnemonic = "quantize",
    .summary =
        "(q, s): q = clamp(round_half_even(x / s), -127, 127) with s = max|x| / 127 for each "
        "group of a row, or the scale given; to f8e4m3 the number next to x / s, with s = max|x| / "
        "448",
    .operands = {{"x"}, {.name = "scale", .kind = OperandSpec::Optional, .single = true}},
    .attrs = {{"group", AttrKind::Int, Attr(int64_t(0)),
               "elements of a row that share a scale; 0: all"},
              quantisedToAttr()},
    .numResults = 2,
    .infer = inferQuantize,
    .eval =
        [](EvalContext &c) {
          using enum ops::Quantize::Operand;
          return setQuantised(c, c.input(X), Scale, "group");
        },
};

} // namespace gpt2c

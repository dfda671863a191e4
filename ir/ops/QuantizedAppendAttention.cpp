#include "ir/ops/AppendAttention.h"
#include "ir/ops/AttentionHead.h"
#include "ir/ops/Common.h"
#include "ir/ops/Quantize.h"

namespace gpt2c {

static llvm::Error inferQuantizedAppendAttention(InferContext &c) {
  using enum ops::QuantizedAppendAttention::Operand;
  using enum ops::QuantizedAppendAttention::Result;
  auto y = inferAppendAttention(c, Length);
  if (!y)
    return y.takeError();
  return inferQuantised(c, y->shape, YScale, "group", Q, YZero);
}

static llvm::Error evalQuantizedAppendAttention(EvalContext &c) {
  using enum ops::QuantizedAppendAttention::Operand;
  using enum ops::QuantizedAppendAttention::Result;
  auto y = evalAppendAttention(c, Length);
  if (!y)
    return y.takeError();
  return setQuantised(c, *y, YScale, "group", Q, YZero);
}

const OpInfo opQuantizedAppendAttention = {
    .code = OpCode::QuantizedAppendAttention,
    .mnemonic = "quantized_append_attention",
    .summary = "(kv', q, s): quantize of append_attention, with y_zero affine_quantize",
    .operands = {{"kv"},
                 {"qkv"},
                 {"past"},
                 {"key_mask", OperandSpec::Optional},
                 {.name = "y_scale", .kind = OperandSpec::Optional, .single = true},
                 {"y_zero", OperandSpec::Optional},
                 {"length", OperandSpec::Optional}},
    .attrs = {{"layer", AttrKind::Int},
              {"num_heads", AttrKind::Int},
              {"scale", AttrKind::Float},
              windowAttr(),
              softCapAttr(),
              {"group", AttrKind::Int, Attr(int64_t(0)),
               "elements of a row of the result that share a scale; 0: all"},
              quantisedToAttr()},
    .numResults = 3,
    .traits = InPlace | OwnStorage,
    .infer = inferQuantizedAppendAttention,
    .eval = evalQuantizedAppendAttention,
    .cost = appendAttentionCost,
};

} // namespace gpt2c

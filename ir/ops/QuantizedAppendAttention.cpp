#include "ir/ops/AppendAttention.h"
#include "ir/ops/Common.h"
#include "ir/ops/Quantize.h"

namespace gpt2c {

constexpr unsigned YScale = 4;

static llvm::Error infer(InferContext &c) {
  auto y = inferAppendAttention(c);
  if (!y)
    return y.takeError();
  return inferQuantised(c, y->shape, YScale, "group", 1);
}

static llvm::Error eval(EvalContext &c) {
  auto y = evalAppendAttention(c);
  if (!y)
    return y.takeError();
  return setQuantised(c, *y, YScale, "group", 1);
}

const OpInfo opQuantizedAppendAttention = {
    .code = OpCode::QuantizedAppendAttention,
    .mnemonic = "quantized_append_attention",
    .summary = "(kv', q, s): quantize of append_attention",
    .operands = {{"kv"},
                 {"qkv"},
                 {"past"},
                 {"key_mask", OperandSpec::Optional},
                 {.name = "y_scale", .kind = OperandSpec::Optional, .single = true}},
    .attrs = {{"layer", AttrKind::Int},
              {"num_heads", AttrKind::Int},
              {"scale", AttrKind::Float},
              {"group", AttrKind::Int, Attr(int64_t(0)),
               "elements of a row of the result that share a scale; 0: all"}},
    .numResults = 3,
    .traits = InPlace | OwnStorage,
    .infer = infer,
    .eval = eval,
    .cost = appendAttentionCost,
};

} // namespace gpt2c

#include "templates/Lowerings.h"

#include "templates/attention/Attention.h"
#include "templates/embed/Embed.h"
#include "templates/generic/GenericLowerings.h"
#include "templates/linear/Linear.h"
#include "templates/norm/Norm.h"
#include "templates/quantize/Quantize.h"
#include "templates/tokens/Tokens.h"

namespace gpt2c {

static llvm::Error lowerConstant(StepBuilder &, Op &) { return llvm::Error::success(); }

static llvm::Error lowerReshape(StepBuilder &b, Op &op) {
  b.alias(op.result(), op.operand(ops::Reshape::X));
  return llvm::Error::success();
}

/// Attention may compute it.
static llvm::Error lowerRopeUnlessFused(StepBuilder &b, Op &op) {
  const bool fused = op.result()->hasOneUse() &&
                     op.result()->uses().front().op->is(OpCode::AppendAttention) &&
                     fusedRope(b, *op.result()->uses().front().op) == &op;
  return fused ? llvm::Error::success() : lowerRope(b, op);
}

Lowering loweringOf(OpCode code) {
  switch (code) {
  case OpCode::Constant:
    return lowerConstant;
  case OpCode::Reshape:
    return lowerReshape;
  case OpCode::Linear:
    return lowerLinear;
  case OpCode::Gated:
    return lowerGatedProduct;
  case OpCode::Quantize:
    return lowerQuantize;
  case OpCode::Dequantize:
    return lowerDequantize;
  case OpCode::QuantizedLinear:
  case OpCode::RequantizedLinear:
    return lowerQuantizedLinear;
  case OpCode::QuantizedLayerNorm:
    return lowerQuantizedLayerNorm;
  case OpCode::QuantizedAppendAttention:
    return lowerQuantizedAppendAttention;
  case OpCode::LayerNorm:
  case OpCode::RmsNorm:
    return lowerNorm;
  case OpCode::AddLayerNorm:
    return lowerAddLayerNorm;
  case OpCode::Embed:
    return lowerEmbed;
  case OpCode::GatherLast:
    return lowerGatherLast;
  case OpCode::ArgMax:
    return lowerArgMax;
  case OpCode::Rope:
    return lowerRopeUnlessFused;
  case OpCode::AppendAttention:
    return lowerAppendAttention;
  default:
    return genericLoweringOf(code);
  }
}

} // namespace gpt2c

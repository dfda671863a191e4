#include "templates/Lowerings.h"

#include "templates/attention/Attention.h"
#include "templates/attention/Kernels.h"
#include "templates/attention/pages/AttentionPages.h"
#include "templates/decode_step/common/DecodeKernels.h"
#include "templates/embed/Embed.h"
#include "templates/exchange/Exchange.h"
#include "templates/generic/GenericLowerings.h"
#include "templates/linear/Kernels.h"
#include "templates/linear/Linear.h"
#include "templates/linear/Mlp.h"
#include "templates/norm/Norm.h"
#include "templates/quantize/Quantize.h"
#include "templates/tokens/Tokens.h"

namespace gpt2c {

/// How an op becomes launches by itself; null: a group says it, or the op has no kernel.
static Lowering loweringOf(OpCode code) {
  switch (code) {
  case OpCode::Gated:
    return lowerGated;
  case OpCode::Quantize:
    return lowerQuantize;
  case OpCode::Dequantize:
    return lowerDequantize;
  case OpCode::QuantizedLayerNorm:
    return lowerQuantizedLayerNorm;
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
  case OpCode::AllGather:
    return lowerAllGather;
  default:
    return genericLoweringOf(code);
  }
}

/// Whether an op has kernels.
static bool lowers(OpCode code) {
  switch (code) {
  case OpCode::Constant:
  case OpCode::Reshape:
  case OpCode::Linear:
  case OpCode::QuantizedLinear:
  case OpCode::RequantizedLinear:
  case OpCode::AppendAttention:
  case OpCode::QuantizedAppendAttention:
  case OpCode::AllReduce:
    return true;
  default:
    return loweringOf(code) != nullptr;
  }
}

const Kernels &allKernels() {
  static const Kernels kernels{linearFamily(), mlpKernels(),    attentionKernels(),
                               pagedKernels(), decodeKernels(), lowers};
  return kernels;
}

namespace {
struct Emitter {
  StepBuilder &b;

  llvm::Error operator()(const OwnGroup &g) { return loweringOf(g.op->code())(b, *g.op); }
  llvm::Error operator()(const DoneGroup &g) {
    if (g.why == DoneGroup::View)
      b.alias(g.op->result(), g.op->operand(0));
    return llvm::Error::success();
  }
  llvm::Error operator()(const RefusedGroup &g) { return noKernel(*g.op, g.why); }
  llvm::Error operator()(const LinearGroup &g) { return emitLinear(b, g); }
  llvm::Error operator()(const MlpGroup &g) { return emitMlp(b, g); }
  llvm::Error operator()(const AttentionGroup &g) { return emitAttention(b, g); }
  llvm::Error operator()(const PagedGroup &g) { return emitPaged(b, g); }
  llvm::Error operator()(const EmbedGroup &g) { return emitEmbed(b, g); }
  llvm::Error operator()(const LargestGroup &g) { return emitLargest(b, g); }
  llvm::Error operator()(const AllReduceGroup &g) { return emitAllReduce(b, g); }
};
} // namespace

llvm::Error emit(StepBuilder &b, const Group &group) { return std::visit(Emitter{b}, group.as); }

llvm::Error build(StepBuilder &b, Function &f, ScheduleOptions options) {
  options.target = b.pool().target;
  options.tf32 = b.pool().tf32;
  options.pageTokens = b.pages() ? int(b.pages()->tokens) : 0;
  auto scheduled = schedule(f, b.bounds(), options, allKernels());
  return scheduled ? b.build(f, *scheduled, emit) : scheduled.takeError();
}

} // namespace gpt2c

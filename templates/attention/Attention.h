// Lowering of attention over the KV state.
#pragma once

#include "templates/quantize/Quantize.h"

namespace gpt2c {

/// The rotary embedding of its queries and keys that the kernel of `attention` computes itself; null:
/// it has a launch of its own.
Op *fusedRope(StepBuilder &b, const Op &attention);
llvm::Error lowerAppendAttention(StepBuilder &b, Op &op);
llvm::Error lowerQuantizedAppendAttention(StepBuilder &b, Op &op);

} // namespace gpt2c

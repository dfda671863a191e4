// Attention over the KV state as launches.
#pragma once

#include "codegen/StepBuilder.h"
#include "schedule/Schedule.h"

namespace gpt2c {

llvm::Error emitAttention(StepBuilder &b, const AttentionGroup &group);

} // namespace gpt2c

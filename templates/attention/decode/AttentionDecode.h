// attention_decode: few queries, keys split over warps, blocks and clusters.
#pragma once

#include "codegen/Grid.h"
#include "codegen/KernelSource.h"
#include "schedule/AttentionProblem.h"

namespace gpt2c {

struct AttentionDecodeConfig : AttentionConfig {};
std::string nameOf(const AttentionDecodeConfig &c);
/// Shared memory of attention_decode.
unsigned attentionRingBytes(const AttentionConfig &config);
KernelSource attentionDecode(llvm::StringRef name, const AttentionConfig &config);

} // namespace gpt2c

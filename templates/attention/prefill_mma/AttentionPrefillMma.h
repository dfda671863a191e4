// attention_prefill_mma: many queries in fp16 by mma.
#pragma once

#include "codegen/KernelSource.h"
#include "schedule/attention/AttentionProblem.h"

namespace gpt2c {

struct AttentionPrefillMmaConfig : AttentionConfig {
  int warps = 4;
  int keys = 64; ///< of a tile
};
std::string nameOf(const AttentionPrefillMmaConfig &c);
KernelSource attentionPrefillMma(llvm::StringRef name, const AttentionPrefillMmaConfig &config);

} // namespace gpt2c

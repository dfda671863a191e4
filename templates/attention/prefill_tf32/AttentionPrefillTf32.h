// attention_prefill_tf32: many queries in fp32 as three products of TF32.
#pragma once

#include "codegen/KernelSource.h"
#include "schedule/attention/AttentionProblem.h"

namespace gpt2c {

struct AttentionPrefillTf32Config : AttentionConfig {
  int warps = 4;
  int keys = 64;  ///< of a tile
  int splits = 1; ///< warpgroups of blocks in a cluster that share keys
};
std::string nameOf(const AttentionPrefillTf32Config &c);
KernelSource attentionPrefillTf32(llvm::StringRef name, const AttentionPrefillTf32Config &config);

} // namespace gpt2c

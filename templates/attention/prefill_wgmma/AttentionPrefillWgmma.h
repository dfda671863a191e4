// attention_prefill_wgmma: many queries on Hopper, tiles of 64 by wgmma.
#pragma once

#include "codegen/KernelSource.h"
#include "schedule/attention/AttentionProblem.h"

namespace gpt2c {

struct AttentionPrefillWgmmaConfig : AttentionConfig {
  int splits = 1; ///< warpgroups that share the keys of 64 queries
};
std::string nameOf(const AttentionPrefillWgmmaConfig &c);
/// Whether a block may have two tiles of queries.
constexpr bool hasAttentionPairs(const AttentionPrefillWgmmaConfig &c) { return c.splits == 4; }
KernelSource attentionPrefillWgmma(llvm::StringRef name, const AttentionPrefillWgmmaConfig &config);

} // namespace gpt2c

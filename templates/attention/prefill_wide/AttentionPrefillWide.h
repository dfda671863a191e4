// attention_prefill_wide: many queries on Hopper, heads of 64 to 256 by wgmma.
#pragma once

#include "codegen/KernelSource.h"
#include "schedule/attention/AttentionProblem.h"

namespace gpt2c {

struct AttentionPrefillWideConfig : AttentionConfig {
  int groups = 1; ///< warpgroups of 64 queries each
};
std::string nameOf(const AttentionPrefillWideConfig &c);
KernelSource attentionPrefillWide(llvm::StringRef name, const AttentionPrefillWideConfig &config);

} // namespace gpt2c

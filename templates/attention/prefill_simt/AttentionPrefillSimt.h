// attention_prefill_simt: many queries on any GPU, without tensor cores.
#pragma once

#include "codegen/KernelSource.h"
#include "schedule/attention/AttentionProblem.h"

namespace gpt2c {

struct AttentionPrefillSimtConfig : AttentionConfig {
  int tq = 4, tk = 4; ///< queries and keys of a tile, in sixteenths
};
std::string nameOf(const AttentionPrefillSimtConfig &c);
KernelSource attentionPrefillSimt(llvm::StringRef name, const AttentionPrefillSimtConfig &config);

} // namespace gpt2c

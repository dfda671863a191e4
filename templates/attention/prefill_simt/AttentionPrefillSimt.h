// attention_prefill_simt: many queries on any GPU, without tensor cores.
#pragma once

#include "codegen/KernelSource.h"
#include "schedule/AttentionProblem.h"

namespace gpt2c {

struct AttentionPrefillSimtConfig : AttentionConfig {};
std::string nameOf(const AttentionPrefillSimtConfig &c);
KernelSource attentionPrefillSimt(llvm::StringRef name, const AttentionConfig &config);

} // namespace gpt2c

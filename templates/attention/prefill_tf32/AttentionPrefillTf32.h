// attention_prefill_tf32: many queries in fp32 as three products of TF32.
#pragma once

#include "codegen/KernelSource.h"
#include "schedule/AttentionProblem.h"

namespace gpt2c {

struct AttentionPrefillTf32Config : AttentionConfig {};
std::string nameOf(const AttentionPrefillTf32Config &c);
KernelSource attentionPrefillTf32(llvm::StringRef name, const AttentionConfig &config);

} // namespace gpt2c

// attention_decode_group: one query of each sequence on tensor cores, the heads that share keys in
// one tile.
#pragma once

#include "codegen/KernelSource.h"
#include "schedule/AttentionProblem.h"

namespace gpt2c {

struct AttentionDecodeGroupConfig : AttentionConfig {};
std::string nameOf(const AttentionDecodeGroupConfig &c);
KernelSource attentionDecodeGroup(llvm::StringRef name, const AttentionConfig &config);

} // namespace gpt2c

// attention_decode_group: one query of each sequence on tensor cores, the heads that share keys in
// one tile.
#pragma once

#include "codegen/KernelSource.h"
#include "templates/attention/parts/SplitKeys.h"

namespace gpt2c {

struct AttentionDecodeGroupConfig : SplitKeysConfig {
  int keys = 32; ///< of a round
};
std::string nameOf(const AttentionDecodeGroupConfig &c);
KernelSource attentionDecodeGroup(llvm::StringRef name, const AttentionDecodeGroupConfig &config);

} // namespace gpt2c

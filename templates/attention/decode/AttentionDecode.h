// attention_decode: few queries, keys split over warps, blocks and clusters.
#pragma once

#include "codegen/Grid.h"
#include "codegen/KernelSource.h"
#include "templates/attention/parts/SplitKeys.h"

namespace gpt2c {

struct AttentionDecodeConfig : SplitKeysConfig {
  int ring = 0; ///< chunks of the state that a warp has on their way, where rows are copied in bulk
  int queries = 1; ///< with a rotary embedding: the most of a sequence
};
std::string nameOf(const AttentionDecodeConfig &c);
/// Shared memory of attention_decode.
unsigned attentionRingBytes(const AttentionDecodeConfig &config);
KernelSource attentionDecode(llvm::StringRef name, const AttentionDecodeConfig &config);

} // namespace gpt2c

// attention_decode_mma: few queries on tensor cores, the queries of a sequence in one tile.
#pragma once

#include "codegen/Grid.h"
#include "codegen/KernelSource.h"
#include "templates/attention/parts/SplitKeys.h"

namespace gpt2c {

struct AttentionDecodeMmaConfig : SplitKeysConfig {
  int blocks = 3;  ///< that have room on a multiprocessor
  int queries = 1; ///< the most of a sequence, at most `warps`
};
std::string nameOf(const AttentionDecodeMmaConfig &c);
/// Whether a state in fp16 or bf16 is read faster by the ring of attention_decode. Changing an SM's
/// shared-memory carve-out drains it, and the ring keeps that of the products: on Hopper from more
/// than 32 sequences on, as long as there are four blocks for each SM, and elsewhere from eight on.
bool preferRing(const AttentionProblem &p);
KernelSource attentionDecodeMma(llvm::StringRef name, const AttentionDecodeMmaConfig &config);

} // namespace gpt2c

// What the attention kernels over a KV state are told of sizes.
#pragma once

#include "templates/attention/score.cuh"

namespace gpt2c {

/// The layer's place in the KV state kv[layers,2,batchMax,heads,context,head_dim], the new tokens
/// of each sequence, the stride of keyMask and the factor of the scores.
struct AttentionSizes {
  int layer, batchMax, context, seq, maskStride;
  float scale;

  /// The factor of scores whose exponentials are base 2.
  __device__ __forceinline__ float base2() const { return scoreFactor(scale); }
};

} // namespace gpt2c

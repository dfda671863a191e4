// kv_append: writes the keys and values of new tokens into the KV state.
//   kv[layer, 0, b, h, past[b] + s, :] = k of qkv[b, s, h], kv[layer, 1, ...] = v
// qkv[batch, seq, 3, heads, head_dim] packed; kv[layers, 2, batchMax, heads, context, head_dim].
// Positions outside the context (padding) are dropped.
//
// Config: X, Kv (float or __half), HeadDim, Heads (static), Threads.
// Kernel: qkv X, kv Kv, past i32[batch] or null, layer, batchMax, context, seq.
// Grid: batch * seq; block: Threads. Bytes: tokens 2 Heads HeadDim (sizeof(X) + sizeof(Kv)).
#pragma once

#include "common.cuh"

namespace gpt2c {

/// Element offset of kv[layer, part, b, h, 0, 0].
__device__ __forceinline__ i64 kvOffset(int layer, int part, i64 b, int h, int batchMax, int heads,
                                        int context, int headDim) {
  return ((((i64)layer * 2 + part) * batchMax + b) * heads + h) * context * headDim;
}

namespace tile {

template <typename C>
__device__ __forceinline__ void kvAppend(const typename C::X *qkv, typename C::Kv *kv,
                                         const int *past, int layer, int batchMax, int context,
                                         int seq, i64 token) {
  constexpr int width = C::Heads * C::HeadDim;
  constexpr int v = vectorWidth(C::HeadDim, elementsPer16Bytes<typename C::X>());
  waitForPredecessor();
  const i64 b = token / seq;
  const int position = (past != nullptr ? past[b] : 0) + (int)(token % seq);
  if (position >= context)
    return;
  for (int i = threadIdx.x * v; i < 2 * width; i += C::Threads * v) {
    int part = i / width, h = i % width / C::HeadDim, d = i % C::HeadDim;
    float a[v];
    loadFloats<v>(qkv + token * 3 * width + width + i, a);
    storeFloats<v>(kv + kvOffset(layer, part, b, h, batchMax, C::Heads, context, C::HeadDim) +
                       (i64)position * C::HeadDim + d,
                   a);
  }
}

} // namespace tile
} // namespace gpt2c

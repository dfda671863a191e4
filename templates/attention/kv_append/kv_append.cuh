// kv_append: writes the keys and values of new tokens into the KV state.
//   kv[layer, 0, b, h, past[b] + s, :] = k of qkv[b, s, h], kv[layer, 1, ...] = v
// qkv[batch, seq, 3, heads, head_dim] packed; kv[layers, 2, batchMax, heads, context, head_dim].
// Positions outside the context (padding) are dropped.
//
// A state of bytes quantises each row (int8.cuh): the context * head_dim elements of a head are
// followed by its context scales in f32, so that head_dim + 4 bytes are kept for a row. head_dim is
// a multiple of 4.
//
// Config: X (float or __half), Kv (either, or signed char or Fp8), HeadDim, Heads (static),
// Threads.
// Kernel: qkv X, kv Kv, past i32[batch] or null, layer, batchMax, context, seq.
// Grid: batch * seq; block: Threads. Bytes: tokens 2 Heads HeadDim (sizeof(X) + sizeof(Kv)).
#pragma once

#include "templates/device/int8.cuh"

namespace gpt2c {

/// Elements of Kv that are kept for a row.
template <typename Kv> __host__ __device__ constexpr int kvRow(int headDim) {
  return headDim + (Operand<Kv>::scaled ? 4 : 0);
}
/// The scales of the rows of bytes of a head, or of a page of it, `context` tokens.
template <typename Kv>
__device__ __forceinline__ float *kvScales(Kv *head, int context, int headDim) {
  return reinterpret_cast<float *>(head + (i64)context * headDim);
}

/// Element offset of kv[layer, part, b, h, 0, 0]; headDim is that of kvRow.
__device__ __forceinline__ i64 kvOffset(int layer, int part, i64 b, int h, int batchMax, int heads,
                                        int context, int headDim) {
  return ((((i64)layer * 2 + part) * batchMax + b) * heads + h) * context * headDim;
}

namespace tile {

/// Writes a row of bytes and its scale with one warp.
template <int HeadDim, typename Kv, typename X>
__device__ __forceinline__ void storeQuantisedRow(Kv *to, float *toScale, const X *from) {
  constexpr int v = vectorWidth(HeadDim, 4), perLane = ceilDiv(HeadDim, 32 * v);
  const int lane = threadIdx.x % 32;
  float a[perLane][v] = {}, largest = 0.0f;
#pragma unroll
  for (int i = 0; i < perLane; i++) {
    const int d = (i * 32 + lane) * v;
    if (d < HeadDim)
      loadFloats<v>(from + d, a[i]);
#pragma unroll
    for (int j = 0; j < v; j++)
      largest = fmaxf(largest, fabsf(a[i][j]));
  }
  const float scale = quantised::scale<Kv>(warpReduce<Max>(largest));
#pragma unroll
  for (int i = 0; i < perLane; i++) {
    const int d = (i * 32 + lane) * v;
    if (d < HeadDim)
      quantised::store(to + d, a[i], quantised::inverse(scale));
  }
  if (lane == 0)
    *toScale = scale;
}

template <typename C>
__device__ __forceinline__ void kvAppend(const typename C::X *qkv, typename C::Kv *kv,
                                         const int *past, int layer, int batchMax, int context,
                                         int seq, i64 token) {
  using Kv = typename C::Kv;
  constexpr int width = C::KvHeads * C::HeadDim, queries = C::Heads * C::HeadDim;
  constexpr int v = vectorWidth(C::HeadDim, elementsPer16Bytes<typename C::X>());
  waitForPredecessor();
  const i64 b = token / seq;
  const int position = (past != nullptr ? past[b] : 0) + (int)(token % seq);
  if (position >= context)
    return;
  auto head = [&](int part, int h) {
    return kv + kvOffset(layer, part, b, h, batchMax, C::KvHeads, context, kvRow<Kv>(C::HeadDim));
  };
  const typename C::X *from = qkv + token * (queries + 2 * width) + queries;
  if constexpr (Operand<Kv>::scaled) {
    for (int row = threadIdx.x / 32; row < 2 * C::KvHeads; row += C::Threads / 32) {
      Kv *of = head(row / C::KvHeads, row % C::KvHeads);
      storeQuantisedRow<C::HeadDim>(of + (i64)position * C::HeadDim,
                                    kvScales(of, context, C::HeadDim) + position,
                                    from + row * C::HeadDim);
    }
  } else {
    for (int i = threadIdx.x * v; i < 2 * width; i += C::Threads * v) {
      int part = i / width, h = i % width / C::HeadDim, d = i % C::HeadDim;
      float a[v];
      loadFloats<v>(from + i, a);
      storeFloats<v>(head(part, h) + (i64)position * C::HeadDim + d, a);
    }
  }
}

} // namespace tile
} // namespace gpt2c

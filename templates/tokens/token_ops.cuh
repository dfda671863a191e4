// The small ops around the head: gather_last, argmax, argmax_parts, advance.
#pragma once

#include "templates/sample/sample_row.cuh"

namespace gpt2c::tile {

// gather_last: y[b,:] = x[b, length[b] - 1, :]; length 0 gives row 0.
// Config: X, D, Threads. Kernel: x X[batch,seq,D], length i32[batch] or null (seq), y X[batch,D],
// seq. Grid: batch; block: Threads. Bytes: 2 batch D sizeof(X).
template <typename C>
__device__ __forceinline__ void gatherLast(const typename C::X *x, const int *length,
                                           typename C::X *y, int seq, i64 b) {
  constexpr int v = vectorWidth(C::D, elementsPer16Bytes<typename C::X>());
  waitForPredecessor();
  releaseSuccessor();
  const int last = max(0, min(length != nullptr ? length[b] : seq, seq) - 1);
  for (int col = threadIdx.x * v; col < C::D; col += C::Threads * v)
    storePack(y + b * C::D + col, loadPack<v>(x + (b * seq + last) * C::D + col));
}

// argmax: next[row] = the lowest index among the largest of logits[row, 0 .. n). NaN never wins; a
// row of nothing but NaN gives 0. `parts` blocks share a row; they meet in a 64-bit maximum, whose
// outcome no order can change. A row that `choices` has drawn is chosen by its temperature instead:
// the largest of other keys, -1 where there is a NaN or infinity, -2 where there is nothing else
// than minus infinity. Config: X, Threads. Kernel: logits X[rows,n], next i32[rows], best
// u64[rows], arrived u32[rows], choices SampleRow[rows] or null (all greedy), n, where best and
//   arrived are zero before the first launch and zero after each.
// Grid: (parts, rows); block: Threads. Bytes: rows n sizeof(X).
__device__ __forceinline__ u64 argmaxKey(float v, int index) {
  if (v != v)
    return 0;
  if (v == 0.0f)
    v = 0.0f; // -0 equals +0
  unsigned bits = __float_as_uint(v);
  unsigned ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return (u64)ordered << 32 | (0xffffffffu - (unsigned)index);
}

/// The largest key of a warp, in every lane.
__device__ __forceinline__ u64 warpLargest(u64 key) {
#if __CUDA_ARCH__ >= 800
  const unsigned high = (unsigned)(key >> 32), top = __reduce_max_sync(fullWarp, high);
  return (u64)top << 32 | __reduce_max_sync(fullWarp, high == top ? (unsigned)key : 0u);
#else
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const u64 other = __shfl_xor_sync(fullWarp, key, offset);
    key = other > key ? other : key;
  }
  return key;
#endif
}
/// The largest key of a block, in thread 0.
template <int Threads> __device__ __forceinline__ u64 blockLargest(u64 key) {
  __shared__ u64 ofWarps[Threads / 32];
  key = warpLargest(key);
  if (threadIdx.x % 32 == 0)
    ofWarps[threadIdx.x / 32] = key;
  __syncthreads();
  if (threadIdx.x == 0)
#pragma unroll
    for (int i = 1; i < Threads / 32; i++)
      key = ofWarps[i] > key ? ofWarps[i] : key;
  return key;
}
__device__ __forceinline__ int indexOf(u64 key) {
  return key == 0 ? 0 : (int)(0xffffffffu - (unsigned)key);
}

template <typename C>
__device__ __forceinline__ void argmax(const typename C::X *logits, int *next, u64 *best,
                                       unsigned *arrived, const int *choices, int n, int part,
                                       int parts, i64 row) {
  waitForPredecessor();
  releaseSuccessor();
  const typename C::X *p = logits + row * n;
  u64 key = 0;
  const int stride = parts * C::Threads, first = part * C::Threads + threadIdx.x;
  const SampleRow *const how = sampling::drawnRow(choices, row);
  if (how == nullptr)
#pragma unroll 8
    for (int i = first; i < n; i += stride) {
      u64 k = argmaxKey(toFloat(p[i]), i);
      key = k > key ? k : key;
    }
  else
#pragma unroll 1
    for (int i = first; i < n; i += stride)
      key = max(key, sampling::drawnKey(how, toFloat(p[i]), i));
  key = blockLargest<C::Threads>(key);
  if (threadIdx.x != 0)
    return;
  if (parts > 1) {
    atomicMax(best + row, key);
    __threadfence();
    if (atomicAdd(arrived + row, 1u) != (unsigned)parts - 1)
      return;
    __threadfence();
    key = atomicExch(best + row, 0ull);
    arrived[row] = 0;
  }
  next[row] = how == nullptr ? indexOf(key) : sampling::tokenOf(key);
}

// argmax_parts: next[row] = the index that the largest of best[row, 0 .. parts) stands for, where
// linear_stream left these. Several warps share a row, so that all of its loads are on their way at
// once.
// Config: Threads. Kernel: best u64[rows,parts], next i32[rows], choices as for argmax, parts.
// Grid: rows; block: Threads.
// Bytes: 8 rows parts.
template <typename C>
__device__ __forceinline__ void argmaxParts(const u64 *best, int *next, const int *choices,
                                            int parts, i64 row) {
  waitForPredecessor();
  releaseSuccessor();
  u64 key = 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < parts; i += C::Threads) {
    const u64 k = best[row * parts + i];
    key = k > key ? k : key;
  }
  key = blockLargest<C::Threads>(key);
  if (threadIdx.x == 0)
    next[row] = sampling::drawnRow(choices, row) == nullptr ? indexOf(key) : sampling::tokenOf(key);
}

// advance: the bookkeeping of one decode step, so that steps replay without the host.
//   tokens[step mod capacity, b] = next[b], ids[b] = next[b], past[b] += 1 for every b, then step
//   += 1
// Kernel: next i32[batch], ids i32[batch], past i32[batch], tokens i32[capacity,batch], step
// i32[1], batch, capacity. Grid: 1; block: any.
__device__ __forceinline__ void advance(const int *next, int *ids, int *past, int *tokens,
                                        int *step, int batch, int capacity) {
  waitForPredecessor();
  releaseSuccessor();
  const int at = *step;
  for (int b = threadIdx.x; b < batch; b += blockDim.x) {
    tokens[(i64)(at % capacity) * batch + b] = next[b];
    ids[b] = next[b];
    past[b] += 1;
  }
  __syncthreads();
  if (threadIdx.x == 0)
    *step = at + 1;
}

} // namespace gpt2c::tile

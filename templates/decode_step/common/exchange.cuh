// How a block waits for what others publish: words of channels, and the choice of a step's token.
#pragma once

#include "templates/decode_step/common/channel.cuh"
#include "templates/decode_step/common/records.h"
#include "templates/tokens/token_ops.cuh"

namespace gpt2c::persistent {

/// Warps that look for the largest key of all blocks.
constexpr int choosers = maxBlocks / 32;

#if __CUDA_ARCH__ >= 900

/// Calls load(), which reads what has not come yet, until missing() is false in every lane of the
/// warp. Between two looks pass Idle nanoseconds.
template <int Idle = 0, typename Load, typename Missing>
__device__ __forceinline__ void receive(Load &&load, Missing &&missing) {
  Patience patience;
  bool waits;
  do {
    load();
    waits = missing();
    patience.spend();
    if constexpr (Idle > 0)
      __nanosleep(Idle);
  } while (__any_sync(fullWarp, waits));
}

/// Whether a piece of partial sums has come: one word, or pairs of words that are written as a whole.
__device__ __forceinline__ bool whole(unsigned word) { return word != 0; }
__device__ __forceinline__ bool whole(u64 pair) { return pair >> 32 != 0; }
__device__ __forceinline__ bool whole(const uint4 &v) { return v.y != 0 && v.w != 0; }
__device__ __forceinline__ void loadWhere(unsigned &v, const void *p, bool valid) {
  loadWord(v, p, valid);
}
__device__ __forceinline__ void loadWhere(u64 &v, const void *p, bool valid) {
  loadPair(v, p, valid);
}
__device__ __forceinline__ void loadWhere(uint4 &v, const void *p, bool valid) {
  loadGroup(v, p, valid);
}
/// Waits for pieces of partial sums: v[i][j], zero before, is at from(i, j) where wanted(i, j).
template <int Idle = 0, int N, int M, typename Piece, typename From, typename Wanted>
__device__ __forceinline__ void receivePieces(Piece (&v)[N][M], From &&from, Wanted &&wanted) {
  receive<Idle>(
      [&] {
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
          for (int j = 0; j < M; j++)
            loadWhere(v[i][j], from(i, j), wanted(i, j) && !whole(v[i][j]));
      },
      [&] {
        bool missing = false;
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
          for (int j = 0; j < M; j++)
            missing |= wanted(i, j) && !whole(v[i][j]);
        return missing;
      });
}
/// Waits for groups that are written as a whole: v[i] is at from(i) where wanted(i).
template <int N, typename From, typename Wanted>
__device__ __forceinline__ void receiveGroups(uint4 (&v)[N], From &&from, Wanted &&wanted) {
  receive(
      [&] {
#pragma unroll
        for (int i = 0; i < N; i++)
          loadGroup(v[i], from(i), wanted(i));
      },
      [&] {
        bool missing = false;
#pragma unroll
        for (int i = 0; i < N; i++)
          missing |= wanted(i) && !written(v[i]);
        return missing;
      });
}

/// The largest of the keys that all blocks publish, of which each thread of the first `choosers`
/// warps waits for one, as loads that acquire follow each other. `ofWarps` is in shared memory;
/// sync() waits for all warps that call.
template <typename Sync>
__device__ __forceinline__ u64 largestOfBlocks(const u64 *keys, int thread,
                                               u64 (&ofWarps)[choosers], Sync &&sync) {
  if (thread < 32 * choosers) {
    u64 key = 0;
    Patience patience;
    while (key == 0 && thread < (int)gridDim.x) {
      key = acquirePair(keys + thread);
      patience.spend();
    }
    __syncwarp();
    key = tile::warpLargest(key);
    if (thread % 32 == 0)
      ofWarps[thread / 32] = key;
  }
  sync();
  u64 best = 0;
#pragma unroll
  for (int i = 0; i < choosers; i++)
    best = max(best, ofWarps[i]);
  return best;
}
/// The same by a warp, whose loads are all on their way at once. What others stored before their keys
/// is seen behind it.
template <int MostBlocks = maxBlocks>
__device__ __forceinline__ u64 largestOfRow(const u64 *keys, int blocks) {
  constexpr int each = ceilDiv(MostBlocks, 32);
  const int lane = threadIdx.x % 32;
  u64 key[each] = {};
  Patience patience;
  bool missing;
  do {
    missing = false;
#pragma unroll
    for (int i = 0; i < each; i++)
      if (key[i] == 0 && i * 32 + lane < blocks)
        key[i] = loadPair(keys + i * 32 + lane);
#pragma unroll
    for (int i = 0; i < each; i++)
      missing |= key[i] == 0 && i * 32 + lane < blocks;
    patience.spend();
  } while (missing);
  fence();
  u64 best = 0;
#pragma unroll
  for (int i = 0; i < each; i++)
    best = max(best, key[i]);
  __syncwarp();
  return tile::warpLargest(best);
}
/// The token of the largest key, whose high half is zero where there are only NaN.
__device__ __forceinline__ int greedyToken(u64 best) {
  return best >> 32 == 0 ? 0 : tile::indexOf(best);
}
#endif

} // namespace gpt2c::persistent

// cached_attention for many queries (prefill), fp16, heads of 64: as attention_prefill_mma.cuh, by
// wgmma on sm_90a; elsewhere that kernel computes the same tile.
//
// Tile: 64 queries of one head per block, a warpgroup; keys and values in tiles of 64 through three
// shared buffers filled by cp.async in the 128-byte swizzle. S = Q K^T with both operands in shared
// memory, for the next tile while the softmax of this one is computed; O += P V with P, rounded to
// fp16, in registers and V read across its rows.
//
// Config, kernel, grid and block: as attention_prefill_mma with Warps 4 and BK 64; dynamic shared:
// AttentionWgmma<C>::sharedBytes.
#pragma once

#include "attention_prefill_mma.cuh"
#include "wgmma.cuh"

namespace gpt2c {

template <typename C> struct AttentionWgmma {
  static constexpr int threads = 128, queries = 64, stages = 3;
  static constexpr int tileHalves = 64 * 64;
  static constexpr int sharedBytes =
      (1 + 2 * stages) * tileHalves * 2 + 1024; // tiles begin at 1 KiB
  static_assert(C::HeadDim == 64 && C::Warps == 4 && C::BK == 64);
};

namespace tile {

template <typename C>
__device__ __forceinline__ void
attentionPrefillWgmma(const __half *qkv, __half *kv, __half *out, const int *past,
                      const int *keyMask, int layer, int batchMax, int context, int seq,
                      int maskStride, float scale, int tileQ, int h, i64 b, __half *shared) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using L = AttentionWgmma<C>;
  constexpr int width = C::Heads * 64;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __half *sq = shared + (1024 - sharedAddress(shared) % 1024) % 1024 / 2;
  auto keyTile = [&](int t) { return sq + (1 + t % L::stages * 2) * L::tileHalves; };
  waitForPredecessor();
  // The same in every thread; the compiler has to see that a warp agrees.
  const int begin = __shfl_sync(fullWarp, past != nullptr ? past[b] : 0, 0);
  const int q0 = tileQ * L::queries, qEnd = min(q0 + L::queries, seq);
  int total = begin + seq;
  if (!C::Append)
    total = min(total, context);
  const int limit = C::Causal ? min(begin + qEnd, total) : total; // keys that some query sees
  const int tiles = (limit + 63) / 64;

  const __half *fresh = qkv + b * seq * 3 * width + h * 64;
  __half *keyCache = kv + kvOffset(layer, 0, b, h, batchMax, C::Heads, context, 64);
  __half *valueCache = kv + kvOffset(layer, 1, b, h, batchMax, C::Heads, context, 64);

  // A thread copies unit `unit` of every 16th row; rows 16 apart have the same swizzle.
  const int firstRow = threadIdx.x / 8, unit = threadIdx.x % 8;
  const int to = firstRow * 64 + (unit ^ firstRow % 8) * 8;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int s = q0 + firstRow + i * 16;
    copyAsync16(sq + to + i * 16 * 64, fresh + (i64)min(s, seq - 1) * 3 * width + unit * 8,
                s < seq);
  }
  auto load = [&](int t) {
    if (t < tiles) {
      __half *k = keyTile(t) + to, *v = k + L::tileHalves;
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int row = t * 64 + firstRow + i * 16, j = min(row, limit - 1);
        const __half *from = keyCache + (i64)j * 64, *fromV = valueCache + (i64)j * 64;
        if (C::Append && j >= begin) {
          from = fresh + (i64)(j - begin) * 3 * width + width;
          fromV = from + width;
        }
        copyAsync16(k + i * 16 * 64, from + unit * 8, row < limit);
        copyAsync16(v + i * 16 * 64, fromV + unit * 8, row < limit);
      }
    }
    copyAsyncCommit();
  };
  load(0); // and the queries
  load(1);

  if constexpr (C::Append) {
    for (int id = threadIdx.x; id < (qEnd - q0) * 16; id += L::threads) {
      const int s = q0 + id / 16, part = id / 8 % 2, c = id % 8 * 8;
      if (begin + s < context)
        storePack((part == 0 ? keyCache : valueCache) + (i64)(begin + s) * 64 + c,
                  loadPack<8>(fresh + (i64)s * 3 * width + (part + 1) * width + c));
    }
  }

  const float factor = scale * 1.4426950408889634f;
  const int row0 = q0 + warp * 16 + lane / 4; // this lane's queries: row0 and row0 + 8
  float o[8][4] = {};
  float top[2] = {negativeInfinity(), negativeInfinity()}, sum[2] = {};

  // Takes tile t, whose scores are on their way to `s`, and starts those of the next to `next`.
  auto step = [&](int t, float(&s)[8][4], float(&next)[8][4]) {
    copyAsyncWait<0>();
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads(); // tile t + 1 is here, and nobody reads tile t - 1 any more
    load(t + 2);
    multiplySlab(next, sq, keyTile(t + 1), false); // of no use after the last
    wgmmaWait<1>();

    const int j0 = t * 64;
    if (C::Mask || j0 + 64 > limit || (C::Causal && j0 + 64 > begin + q0 + warp * 16 + 1)) {
#pragma unroll
      for (int j = 0; j < 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const int key = j0 + j * 8 + lane % 4 * 2 + e % 2;
          bool visible = key < limit && (!C::Causal || key <= begin + row0 + e / 2 * 8);
          if (C::Mask)
            visible = visible && (keyMask == nullptr || keyMask[b * maskStride + key] != 0);
          if (!visible)
            s[j][e] = negativeInfinity();
        }
    }
    unsigned p[4][4];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float m = top[half];
#pragma unroll
      for (int j = 0; j < 8; j++)
        m = fmaxf(m, fmaxf(s[j][half * 2], s[j][half * 2 + 1]));
      m = warpReduce<Max, 4>(m);
      const float base = m == negativeInfinity() ? 0.0f : m * factor;
      const float keep = exp2f(top[half] * factor - base);
      top[half] = m;
      float part = 0.0f;
#pragma unroll
      for (int j = 0; j < 8; j++) {
        const float x = exp2f(fmaf(s[j][half * 2], factor, -base)),
                    y = exp2f(fmaf(s[j][half * 2 + 1], factor, -base));
        part += x + y;
        p[j / 2][j % 2 * 2 + half] = packHalves(x, y);
      }
      sum[half] = sum[half] * keep + part;
#pragma unroll
      for (int d = 0; d < 8; d++) {
        o[d][half * 2] *= keep;
        o[d][half * 2 + 1] *= keep;
      }
    }
    const u64 values = swizzledOperand(keyTile(t) + L::tileHalves);
    wgmmaFence();
#pragma unroll
    for (int j = 0; j < 4; j++) // 16 keys are 16 rows of 128 bytes
      wgmmaAcross(o, p[j], values + j * (16 * 128 / 16));
    wgmmaCommit();
    wgmmaWait<0>();
  };

  copyAsyncWait<1>();
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  float even[8][4], odd[8][4];
  multiplySlab(even, sq, keyTile(0), false);
#pragma unroll 1
  for (int t = 0; t < tiles; t += 2) {
    step(t, even, odd);
    if (t + 1 < tiles)
      step(t + 1, odd, even);
  }
  copyAsyncWait<0>();

#pragma unroll
  for (int half = 0; half < 2; half++) {
    const float total = warpReduce<Sum, 4>(sum[half]);
    const float inverse = total > 0.0f ? 1.0f / total : 0.0f;
    const int s = row0 + half * 8;
    if (s >= seq)
      continue;
    __half *at = out + (b * seq + s) * width + h * 64 + lane % 4 * 2;
#pragma unroll
    for (int d = 0; d < 8; d++) {
      float pair[2] = {o[d][half * 2] * inverse, o[d][half * 2 + 1] * inverse};
      storeFloats<2>(at + d * 8, pair);
    }
  }
#else
  static_assert(AttentionMma<C>::threads == AttentionWgmma<C>::threads &&
                AttentionMma<C>::sharedBytes <= AttentionWgmma<C>::sharedBytes);
  attentionPrefillMma<C>(qkv, kv, out, past, keyMask, layer, batchMax, context, seq, maskStride,
                         scale, tileQ, h, b, shared);
#endif
}

} // namespace tile
} // namespace gpt2c

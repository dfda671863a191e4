// cached_attention for many queries (prefill), fp32 on tensor cores by 3xTF32 (tf32.cuh). Meaning,
// Append and the mask as in attention_decode.cuh.
//
// Tile: 16 * Warps queries of one head per block, keys in tiles of BK through two shared buffers
// filled by cp.async. BK / 32 warps share 16 queries: each takes 32 keys of every tile. Splits
// blocks, a thread block cluster, share the tiles of keys in turn, so that few queries fill the
// chip (before sm_90 the first takes all). In the end the softmax states of all these warps are
// merged in order. S = Q K^T and O += P V by mma.m16n8k8 (tf32_products.cuh), the online softmax in
// fp32 registers. Keys that no query of a warp sees are skipped; only where some query sees a part
// there is a mask.
//
// Rows in shared memory are HeadDim + 4 floats apart: rows read together, and every second row read
// together, lie in different banks.
//
// Config: HeadDim (a multiple of 8, at most 128), Heads, Warps, BK (a multiple of 32), Splits (at
// most 8), Append, Causal, Mask, Y (float, or signed char: quantised with a scale that is given).
// Kernel: qkv f32[batch,seq,3,Heads,HeadDim], kv f32[layers,2,batchMax,Heads,context,HeadDim], out
// Y[batch,seq,Heads,HeadDim], past i32[batch] or null, keyMask i32[batch,maskStride] or null,
// layer, batchMax, context, seq, maskStride, scale.
// Grid: (ceil(seq / (16 * Warps)), Heads, batch * Splits), clusters of (1, 1, Splits); block:
// AttentionTf32<C>::threads; dynamic shared: AttentionTf32<C>::sharedBytes. Bytes: 4 (past + 2 seq)
// HeadDim Heads + ...; flops: 4 HeadDim Heads (visible pairs) per sequence.
#pragma once

#include "templates/attention/parts/prefill_rows.cuh"
#include "templates/attention/parts/tf32_products.cuh"

namespace gpt2c {

template <typename C> struct AttentionTf32 {
  static constexpr int parts = C::BK / 32;
  static constexpr int threads = 32 * C::Warps * parts;
  static constexpr int queries = 16 * C::Warps;
  static constexpr int rowStride = C::HeadDim + 4;
  static constexpr int tileFloats = C::BK * rowStride;
  static constexpr int sharedBytes = (queries * rowStride + 4 * tileFloats) * 4;
  static constexpr int depth = C::HeadDim / 8;
  static_assert(C::HeadDim % 8 == 0 && C::HeadDim <= 128 && C::BK % 32 == 0);
};

namespace tile {

/// A barrier of all blocks that share queries.
template <int Splits> __device__ __forceinline__ void meet() {
#if __CUDA_ARCH__ >= 900
  if constexpr (Splits > 1) {
    clusterBarrier();
    return;
  }
#endif
  __syncthreads();
}

/// The parameters of the kernel and of the tile.
template <typename C, typename Given> struct AttentionTf32Params {
  const float *qkv;
  float *kv;
  typename C::Y *out;
  const int *past, *keyMask;
  AttentionSizes sizes;
  int tileQ, h;
  i64 b;
  int split;
  float *shared;
  const Given &given;
};

/// The queries of a block, 16 for each group of L::parts warps, in phases; `run` has their order.
template <typename C, typename Given> struct AttentionTf32Tile {
  using L = AttentionTf32<C>;
  using Rows = PrefillRows<C, float, float, C::Heads, L::queries, L::threads>;
#if __CUDA_ARCH__ >= 900
  static constexpr int splits = C::Splits;
#else
  static constexpr int splits = 1;
#endif
  static constexpr int states = L::parts * splits;       // of the same queries
  static constexpr bool keepsQueries = C::HeadDim <= 64; // in registers

  const AttentionTf32Params<C, Given> p;
  const int lane, group, part;
  const Rows rows;
  float *sq, *sk, *sv; // of shared memory: queries, two tiles each of keys and values
  int warpLimit;       // keys that some query of the warp sees
  int row0;            // this lane's queries: row0 and row0 + 8
  float factor;
  tf32::Split<4> q[keepsQueries ? L::depth : 1];
  float o[L::depth][4] = {}; // relative to `top`, the scores' maximum, as `sum` is
  float top[2] = {negativeInfinity(), negativeInfinity()}, sum[2] = {};

  __device__ __forceinline__ explicit AttentionTf32Tile(const AttentionTf32Params<C, Given> &p)
      : p(p), lane(threadIdx.x % 32), group(threadIdx.x / 32 % C::Warps),
        part(threadIdx.x / 32 / C::Warps), rows(p.qkv, p.kv, p.past, p.sizes, p.tileQ, p.h, p.b) {}

  __device__ __forceinline__ void run() {
    begin();
    const int left = max(rows.limit - p.split * C::BK, 0);
    const int rounds = (left + C::BK * splits - 1) / (C::BK * splits);
    for (int round = 0; round < rounds; round++)
      attend(round);
    copyAsyncWait<0>();
    if constexpr (states > 1) {
      mergeStates();
      if (part > 0 || p.split > 0)
        return;
    }
    store();
  }

  __device__ __forceinline__ void begin() {
    sq = p.shared, sk = p.shared + L::queries * L::rowStride, sv = sk + 2 * L::tileFloats;
    const int seen = rows.begin + rows.q0 + group * 16 + 16;
    warpLimit = C::Causal ? min(seen, rows.limit) : rows.limit;
    rows.copyQueries(sq, L::rowStride);
    load(0);
    if (C::Append && p.split == 0)
      rows.append();
    factor = p.sizes.base2();
    row0 = rows.q0 + group * 16 + lane / 4;
  }

  /// The first key of the block's tile of a round: tiles split, split + splits, ...
  __device__ __forceinline__ int firstKey(int round) const {
    return (p.split + round * splits) * C::BK;
  }
  /// One group of copies.
  __device__ __forceinline__ void load(int round) {
    constexpr int chunks = C::HeadDim / 4;
    const int first = firstKey(round);
    if (first < rows.limit) {
      float *k = sk + round % 2 * L::tileFloats, *v = sv + round % 2 * L::tileFloats;
      for (int id = threadIdx.x; id < C::BK * chunks; id += L::threads) {
        const int r = id / chunks, c = id % chunks * 4;
        rows.copyKey(k + r * L::rowStride + c, v + r * L::rowStride + c, first + r, c);
      }
    }
    copyAsyncCommit();
  }
  __device__ __forceinline__ void loadQuery(tf32::Split<4> &to, int i) const {
    unsigned bits[4];
    loadMatrix4(bits, sq + (group * 16 + lane % 16) * L::rowStride + lane / 16 * 4 + i * 8);
#pragma unroll
    for (int e = 0; e < 4; e++)
      to.set(e, __float_as_uint(__uint_as_float(bits[e]) * factor));
  }

  __device__ __forceinline__ void attend(int round) {
    load(round + 1);
    copyAsyncWait<1>();
    __syncthreads();
    if constexpr (keepsQueries) {
      if (round == 0)
#pragma unroll
        for (int i = 0; i < L::depth; i++)
          loadQuery(q[i], i);
    }
    const int j0 = firstKey(round) + part * 32; // this warp's keys
    if (j0 < warpLimit) {
      const int first = round % 2 * L::tileFloats + part * 32 * L::rowStride;
      float s[4][4], keep[2];
      multiplyKeys(s, sk + first);
      const bool partial = C::Mask || j0 + 32 > rows.limit ||
                           (C::Causal && j0 + 32 > rows.begin + rows.q0 + group * 16 + 1);
      if (partial)
        rows.hide(s, j0, row0,
                  p.keyMask == nullptr ? nullptr : p.keyMask + p.b * p.sizes.maskStride);
      softmax(s, keep);
      addValuesTf32<L::rowStride>(o, s, keep, sv + first, lane);
    }
    __syncthreads();
  }
  __device__ __forceinline__ void multiplyKeys(float (&s)[4][4], const float *k) {
#pragma unroll
    for (int i = 0; i < L::depth; i++) {
      if constexpr (!keepsQueries)
        loadQuery(q[0], i);
      tf32::Split<2> keys[4];
      loadKeysTf32<L::rowStride>(keys, k, i, lane);
      if (i == 0)
        multiplyTf32<true>(s, q[0], keys);
      else
        multiplyTf32<false>(s, q[keepsQueries ? i : 0], keys);
    }
  }
  /// Scores become weights; `keep` rescales what is accumulated so far.
  __device__ __forceinline__ void softmax(float (&s)[4][4], float (&keep)[2]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float m = top[half];
#pragma unroll
      for (int j = 0; j < 4; j++)
        m = fmaxf(m, fmaxf(s[j][half * 2], s[j][half * 2 + 1]));
      m = warpReduce<Max, 4>(m);
      const float base = m == negativeInfinity() ? 0.0f : m;
      keep[half] = exp2f(top[half] - base);
      top[half] = m;
      float added = 0.0f;
#pragma unroll
      for (int j = 0; j < 4; j++)
#pragma unroll
        for (int e = half * 2; e < half * 2 + 2; e++)
          added += s[j][e] = exp2f(s[j][e] - base);
      sum[half] = sum[half] * keep[half] + added;
    }
  }
  // The end
  // -----------------------------------------------------------------------------------------------

  /// The first of the warps that share queries adds up their states, in order. The state of lane l
  /// of warp w is float i * threads + 32 w + l of shared memory, for i = 0 ...
  __device__ __forceinline__ void mergeStates() {
    static_assert(states == 1 || (L::depth * 4 + 4) * L::threads * 4 <= L::sharedBytes);
    __syncthreads();
    if (part > 0 || p.split > 0)
      leaveState();
    meet<splits>();
    if (part == 0 && p.split == 0)
#pragma unroll 1
      for (int other = 1; other < states; other++)
        addState(other);
    if constexpr (splits > 1)
      meet<splits>(); // no block ends while others read its states
  }
  __device__ __forceinline__ void leaveState() const {
    float *to = p.shared + threadIdx.x;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      to[half * L::threads] = top[half];
      to[(2 + half) * L::threads] = sum[half];
    }
#pragma unroll
    for (int i = 0; i < L::depth * 4; i++)
      to[(4 + i) * L::threads] = o[i / 4][i % 4];
  }
  __device__ __forceinline__ void addState(int other) {
    const float *from = p.shared + other % L::parts * 32 * C::Warps + threadIdx.x;
    auto at = [&](int i) {
#if __CUDA_ARCH__ >= 900
      if constexpr (splits > 1)
        return loadFromCluster(from + i * L::threads, other / L::parts);
#endif
      return from[i * L::threads];
    };
    float mine[2], theirs[2], values[L::depth * 4];
#pragma unroll
    for (int i = 0; i < L::depth * 4; i++)
      values[i] = at(4 + i);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float m = at(half), most = fmaxf(top[half], m);
      const float base = most == negativeInfinity() ? 0.0f : most;
      mine[half] = exp2f(top[half] - base);
      theirs[half] = exp2f(m - base);
      top[half] = most;
      sum[half] = sum[half] * mine[half] + at(2 + half) * theirs[half];
    }
#pragma unroll
    for (int i = 0; i < L::depth * 4; i++)
      o[i / 4][i % 4] = o[i / 4][i % 4] * mine[i % 4 / 2] + values[i] * theirs[i % 4 / 2];
  }

  __device__ __forceinline__ void store() const {
    constexpr int width = C::Heads * C::HeadDim;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float all = warpReduce<Sum, 4>(sum[half]);
      const float inverse = all > 0.0f ? 1.0f / all : 0.0f;
      const int s = row0 + half * 8;
      if (s >= p.sizes.seq)
        continue;
      typename C::Y *to = p.out + (p.b * p.sizes.seq + s) * width + p.h * C::HeadDim + lane % 4 * 2;
#pragma unroll
      for (int d = 0; d < L::depth; d++) {
        float pair[2] = {o[d][half * 2] * inverse, o[d][half * 2 + 1] * inverse};
        p.given.apply(pair);
        storeFloats<2>(to + d * 8, pair);
      }
    }
  }
};

template <typename C, typename Given>
__device__ __forceinline__ void
attentionPrefillTf32(const float *qkv, float *kv, typename C::Y *out, const int *past,
                     const int *keyMask, int layer, int batchMax, int context, int seq,
                     int maskStride, float scale, int tileQ, int h, i64 b, int split, float *shared,
                     const Given &given) {
#if !(__CUDA_ARCH__ >= 900)
  if (split > 0)
    return;
#endif
  const AttentionSizes sizes = {layer, batchMax, context, seq, maskStride, scale};
  AttentionTf32Tile<C, Given> tile(
      {qkv, kv, out, past, keyMask, sizes, tileQ, h, b, split, shared, given});
  tile.run();
}

} // namespace tile
} // namespace gpt2c

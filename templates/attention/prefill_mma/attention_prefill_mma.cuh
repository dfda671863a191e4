// cached_attention for many queries (prefill), fp16 or bf16 on tensor cores. Meaning, Append and
// the mask as in attention_decode.cuh.
//
// Tile: BQ = 16 * Warps queries of one head per block, keys in tiles of BK through two shared
// buffers filled by cp.async. A warp owns 16 queries: S = Q K^T and O += P V by mma.m16n8k16,
// online softmax in fp32 registers, P rounded to the type of qkv. Key tiles that no query of the
// block sees are skipped; only tiles that some query sees in part are masked.
//
// A state of bytes (kv_append.cuh), without Append, is dequantised to that type on the way to
// shared memory.
//
// X is the type of qkv, __half or __nv_bfloat16. Config: Kv (X, signed char or Fp8), Y (X or signed
// char: quantised, a scale for each query and head, where HeadDim is a multiple of 32, or one that
// is given), HeadDim (a multiple of 16, <= 256), Heads, Warps, BK (a multiple of 16), Append,
// Causal, Mask, Window (as in attention_decode.cuh).
// Kernel: qkv X[batch,seq,Heads+2*KvHeads,HeadDim],
//   kv Kv[layers,2,batchMax,KvHeads,context,HeadDim],
//   out Y[batch,seq,Heads,HeadDim], outScale f32[batch,seq,Heads] (null unless it is written), past
//   i32[batch] or null, keyMask i32[batch,maskStride] or null, layer, batchMax, context, seq,
//   maskStride, scale.
// Grid: (ceil(seq / BQ), Heads, batch); block: 32 * Warps; dynamic shared:
// AttentionMma<C>::sharedBytes. Bytes: 2 (past + 2 seq) HeadDim Heads + ...; flops: 4 HeadDim Heads
// (visible pairs) per sequence.
#pragma once

#include "templates/attention/parts/attention_store.cuh"
#include "templates/attention/parts/prefill_rows.cuh"
#include "templates/device/mma.cuh"

namespace gpt2c {

template <typename C> struct AttentionMma {
  static constexpr int queries = 16 * C::Warps;
  static constexpr int threads = 32 * C::Warps;
  static constexpr int rowStride =
      C::HeadDim + 8; // halves; an odd number of 16-byte units: no bank conflicts
  static constexpr int tileHalves = C::BK * rowStride;
  static constexpr int sharedBytes = (queries * rowStride + 4 * tileHalves) * 2;
  static_assert(C::HeadDim % 16 == 0 && C::HeadDim <= 256 && C::BK % 16 == 0);
};

namespace tile {

/// The parameters of the kernel and of the tile.
template <typename C, typename Given, typename X> struct AttentionMmaParams {
  const X *qkv;
  typename C::Kv *kv;
  typename C::Y *out;
  float *outScale;
  const Given &given;
  const int *past, *keyMask;
  AttentionSizes sizes;
  int tileQ, h;
  i64 b;
  X *shared;
};

/// The queries of a block, 16 for each warp, in phases; `run` has their order.
template <typename C, typename Given, typename X> struct AttentionMmaTile {
  using L = AttentionMma<C>;
  using Kv = typename C::Kv;
  using Rows = PrefillRows<C, X, Kv, C::KvHeads, L::queries, L::threads>;
  static_assert(sizeof(Kv) == 2 || !C::Append);
  static constexpr int depth = C::HeadDim / 16;
  static constexpr bool keepsQueries = C::HeadDim <= 128; // in registers

  const AttentionMmaParams<C, Given, X> p;
  const int warp, lane;
  const Rows rows;
  X *sq, *sk, *sv; // of shared memory: queries, two tiles each of keys and values
  int row0;        // this lane's queries: row0 and row0 + 8
  const X *qLane;
  unsigned q[keepsQueries ? depth : 1][4];
  float factor;
  float o[C::HeadDim / 8][4] = {}; // relative to `top`, the scores' maximum, as `sum` is
  float top[2] = {negativeInfinity(), negativeInfinity()}, sum[2] = {};

  __device__ __forceinline__ explicit AttentionMmaTile(const AttentionMmaParams<C, Given, X> &p)
      : p(p), warp(threadIdx.x / 32), lane(threadIdx.x % 32),
        rows(p.qkv, p.kv, p.past, p.sizes, p.tileQ, p.h, p.b) {}

  __device__ __forceinline__ void run() {
    const int first = rows.oldest() / C::BK, tiles = (rows.limit + C::BK - 1) / C::BK;
    begin(first);
    for (int t = first; t < tiles; t++)
      attend(t, t == first);
    copyAsyncWait<0>();
    storeAttention<C::Heads, C::HeadDim>(o, sum, p.out, p.outScale, rows.q0 + warp * 16,
                                         p.sizes.seq, p.h, p.b, p.given);
  }

  __device__ __forceinline__ void begin(int firstTile) {
    sq = p.shared, sk = p.shared + L::queries * L::rowStride, sv = sk + 2 * L::tileHalves;
    rows.copyQueries(sq, L::rowStride);
    load(firstTile);
    if constexpr (C::Append)
      rows.append();
    qLane = sq + (warp * 16 + lane % 16) * L::rowStride + lane / 16 * 8;
    factor = p.sizes.base2();
    row0 = rows.q0 + warp * 16 + lane / 4;
  }

  /// Key tile t to shared memory, one group of copies.
  __device__ __forceinline__ void load(int t) {
    constexpr int chunks = C::HeadDim / 8;
    if (t * C::BK < rows.limit) {
      X *k = sk + t % 2 * L::tileHalves, *v = sv + t % 2 * L::tileHalves;
      for (int id = threadIdx.x; id < C::BK * chunks; id += L::threads) {
        const int r = id / chunks, c = id % chunks * 8, j = t * C::BK + r;
        if constexpr (Operand<Kv>::scaled) {
          dequantise(k + r * L::rowStride + c, rows.keyCache, j, c);
          dequantise(v + r * L::rowStride + c, rows.valueCache, j, c);
        } else {
          rows.copyKey(k + r * L::rowStride + c, v + r * L::rowStride + c, j, c);
        }
      }
    }
    copyAsyncCommit();
  }
  __device__ __forceinline__ void dequantise(X *to, Kv *cache, int j, int c) const {
    const int row = min(j, rows.limit - 1);
    const Pack<Kv, 8> pack = loadPack<8>(cache + (i64)row * C::HeadDim + c);
    const float scale = j < rows.limit ? kvScales(cache, p.sizes.context, C::HeadDim)[row] : 0.0f;
    float a[8];
#pragma unroll
    for (int e = 0; e < 8; e++)
      a[e] = pack.get(e) * scale;
    storeFloats<8>(to, a);
  }

  __device__ __forceinline__ void attend(int t, bool isFirst) {
    load(t + 1);
    copyAsyncWait<1>();
    __syncthreads();
    if constexpr (keepsQueries) {
      if (isFirst)
#pragma unroll
        for (int i = 0; i < depth; i++)
          loadMatrix4(q[i], qLane + i * 16);
    }
    const int j0 = t * C::BK;
    float s[C::BK / 8][4] = {};
    multiplyKeys(s, sk + t % 2 * L::tileHalves);
    const bool partial = C::Mask || C::Window > 0 || j0 + C::BK > rows.limit ||
                         (C::Causal && j0 + C::BK > rows.begin + rows.q0 + warp * 16 + 1);
    if (partial)
      rows.hide(s, j0, row0, p.keyMask == nullptr ? nullptr : p.keyMask + p.b * p.sizes.maskStride);
    softmax(s);
    multiplyValues(s, sv + t % 2 * L::tileHalves);
    __syncthreads();
  }
  __device__ __forceinline__ void multiplyKeys(float (&s)[C::BK / 8][4], const X *k) {
    const X *kLane = k + (lane % 8 + lane / 16 * 8) * L::rowStride + lane / 8 % 2 * 8;
#pragma unroll
    for (int i = 0; i < depth; i++) {
      if constexpr (!keepsQueries)
        loadMatrix4(q[0], qLane + i * 16);
#pragma unroll
      for (int j = 0; j < C::BK / 16; j++) {
        unsigned b[4];
        loadMatrix4(b, kLane + j * 16 * L::rowStride + i * 16);
        Mma<X>::multiply(s[2 * j], q[keepsQueries ? i : 0], b[0], b[1]);
        Mma<X>::multiply(s[2 * j + 1], q[keepsQueries ? i : 0], b[2], b[3]);
      }
    }
  }
  /// Scores become weights; what is accumulated so far is rescaled.
  __device__ __forceinline__ void softmax(float (&s)[C::BK / 8][4]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float m = top[half];
#pragma unroll
      for (int j = 0; j < C::BK / 8; j++)
        m = fmaxf(m, fmaxf(s[j][half * 2], s[j][half * 2 + 1]));
      m = warpReduce<Max, 4>(m);
      const float base = m == negativeInfinity() ? 0.0f : m * factor;
      const float keep = exp2f(top[half] * factor - base);
      top[half] = m;
      float part = 0.0f;
#pragma unroll
      for (int j = 0; j < C::BK / 8; j++) {
        s[j][half * 2] = exp2f(fmaf(s[j][half * 2], factor, -base));
        s[j][half * 2 + 1] = exp2f(fmaf(s[j][half * 2 + 1], factor, -base));
        part += s[j][half * 2] + s[j][half * 2 + 1];
      }
      sum[half] = sum[half] * keep + part;
#pragma unroll
      for (int d = 0; d < C::HeadDim / 8; d++) {
        o[d][half * 2] *= keep;
        o[d][half * 2 + 1] *= keep;
      }
    }
  }
  __device__ __forceinline__ void multiplyValues(const float (&s)[C::BK / 8][4], const X *v) {
    const X *vLane = v + (lane % 16) * L::rowStride + lane / 16 * 8;
#pragma unroll
    for (int j = 0; j < C::BK / 16; j++) {
      const unsigned a[4] = {Mma<X>::pack(s[2 * j][0], s[2 * j][1]),
                             Mma<X>::pack(s[2 * j][2], s[2 * j][3]),
                             Mma<X>::pack(s[2 * j + 1][0], s[2 * j + 1][1]),
                             Mma<X>::pack(s[2 * j + 1][2], s[2 * j + 1][3])};
#pragma unroll
      for (int d = 0; d < depth; d++) {
        unsigned b[4];
        loadMatrix4Transposed(b, vLane + j * 16 * L::rowStride + d * 16);
        Mma<X>::multiply(o[2 * d], a, b[0], b[1]);
        Mma<X>::multiply(o[2 * d + 1], a, b[2], b[3]);
      }
    }
  }
};

template <typename C, typename Given, typename X>
__device__ __forceinline__ void
attentionPrefillMma(const X *qkv, typename C::Kv *kv, typename C::Y *out, float *outScale,
                    const Given &given, const int *past, const int *keyMask, int layer,
                    int batchMax, int context, int seq, int maskStride, float scale, int tileQ,
                    int h, i64 b, X *shared) {
  const AttentionSizes sizes = {layer, batchMax, context, seq, maskStride, scale};
  AttentionMmaTile<C, Given, X> tile(
      {qkv, kv, out, outScale, given, past, keyMask, sizes, tileQ, h, b, shared});
  tile.run();
}

} // namespace tile
} // namespace gpt2c

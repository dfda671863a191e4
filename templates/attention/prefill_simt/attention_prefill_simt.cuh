// cached_attention for many queries on the plain units, fp32 arithmetic, any head dimension.
// Meaning, Append and the mask as in attention_decode.cuh.
//
// Tile: BQ = 16 * TQ queries of one head per block, keys in tiles of BK = 16 * TK; 16 x 16 threads.
// Thread (ty, tx) owns scores of queries ty * TQ + i and keys tx + 16 j, and outputs of the same
// queries in groups of 4 columns tx + 16 c. Keys and values share one shared buffer. Rows are
// padded to a multiple of 4 with an odd number of 16-byte units.
//
// A state of bytes (kv_append.cuh) comes without Append.
//
// Config: X (qkv: float or __half), Y (out: X, or signed char: quantised with a scale that is
// given), Kv (X or signed char), HeadDim, Heads, TQ, TK (TK even), Append, Causal, Mask, Window,
// SoftCap, Alibi (score.cuh).
// Kernel and grid: as attention_prefill_mma.cuh; block: 256; dynamic shared:
// AttentionSimt<C>::sharedBytes.
#pragma once

#include "templates/attention/kv_append/kv_append.cuh"
#include "templates/attention/parts/attention_sizes.cuh"
#include "templates/attention/parts/softmax_state.cuh"

namespace gpt2c {

template <typename C> struct AttentionSimt {
  static constexpr int queries = 16 * C::TQ, keys = 16 * C::TK, threads = 256;
  static constexpr int padded = ceilDiv(C::HeadDim, 4) * 4;
  static constexpr int rowStride = padded + (padded / 4 % 2 == 0 ? 4 : 0);
  static constexpr int probStride = keys + 4;
  static constexpr int groups = ceilDiv(padded / 4, 16); // groups of 4 columns of a thread
  static constexpr int sharedBytes =
      4 * (queries * rowStride + keys * rowStride + queries * probStride);
};

namespace tile {

/// The parameters of the kernel and of the tile.
template <typename C, typename Given> struct AttentionSimtParams {
  const typename C::X *qkv;
  typename C::Kv *kv;
  typename C::Y *out;
  const int *past, *keyMask;
  AttentionSizes sizes;
  int tileQ, h;
  i64 b;
  float *shared;
  const Given &given;
};

/// A block's queries, in phases; `run` has their order.
template <typename C, typename Given> struct AttentionSimtTile {
  using L = AttentionSimt<C>;
  using X = typename C::X;
  using Kv = typename C::Kv;
  static constexpr int width = C::Heads * C::HeadDim;
  static constexpr int qkvRow = width + 2 * C::KvHeads * C::HeadDim;
  static constexpr int v = vectorWidth(C::HeadDim, 4), perRow = L::padded / v;
  static constexpr bool bytes = Operand<Kv>::scaled;
  static_assert(!C::Append || (C::KvHeads == C::Heads && !bytes));

  const AttentionSimtParams<C, Given> p;
  const Score<C> scores;
  int tx, ty, begin, q0, qEnd;
  int limit;      // keys that some query sees
  const X *fresh; // the head's part of the first new token
  Kv *keyCache, *valueCache;
  float *sq, *skv, *sp; // of shared memory: queries, keys or values, weights
  SoftmaxState<L::groups * 4> state[C::TQ];

  __device__ __forceinline__ explicit AttentionSimtTile(const AttentionSimtParams<C, Given> &p)
      : p(p), scores(Score<C>::ofHead(p.h)) {}

  __device__ __forceinline__ void run() {
    locate();
    loadQueries();
    if constexpr (C::Append)
      append();
    const int oldest = C::Window > 0 ? max(begin + q0 + 1 - C::Window, 0) : 0;
    for (int j0 = oldest / L::keys * L::keys; j0 < limit; j0 += L::keys)
      attend(j0);
    store();
  }

  __device__ __forceinline__ void locate() {
    tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    sq = p.shared, skv = sq + L::queries * L::rowStride, sp = skv + L::keys * L::rowStride;
    waitForPredecessor();
    begin = p.past != nullptr ? p.past[p.b] : 0;
    q0 = p.tileQ * L::queries;
    qEnd = min(q0 + L::queries, p.sizes.seq);
    int total = begin + p.sizes.seq;
    if (!C::Append)
      total = min(total, p.sizes.context);
    limit = C::Causal ? min(begin + qEnd, total) : total;
    const int keyHead = p.h / (C::Heads / C::KvHeads);
    constexpr int kept = kvRow<Kv>(C::HeadDim);
    fresh = p.qkv + p.b * p.sizes.seq * qkvRow + p.h * C::HeadDim;
    keyCache = p.kv + kvOffset(p.sizes.layer, 0, p.b, keyHead, p.sizes.batchMax, C::KvHeads,
                               p.sizes.context, kept);
    valueCache = p.kv + kvOffset(p.sizes.layer, 1, p.b, keyHead, p.sizes.batchMax, C::KvHeads,
                                 p.sizes.context, kept);
  }
  __device__ __forceinline__ void loadQueries() {
    for (int id = threadIdx.x; id < L::queries * perRow; id += L::threads) {
      const int r = id / perRow, c = id % perRow * v;
      float a[v] = {};
      if (q0 + r < p.sizes.seq && c < C::HeadDim)
        loadFloats<v>(fresh + (i64)(q0 + r) * qkvRow + c, a);
#pragma unroll
      for (int i = 0; i < v; i++)
        sq[r * L::rowStride + c + i] = scaledScore(a[i], p.sizes.scale);
    }
  }
  /// The tile's own keys and values to the state.
  __device__ __forceinline__ void append() {
    constexpr int vectors = C::HeadDim / v;
    for (int id = threadIdx.x; id < (qEnd - q0) * 2 * vectors; id += L::threads) {
      const int s = q0 + id / (2 * vectors), part = id / vectors % 2, c = id % vectors * v;
      if (begin + s >= p.sizes.context)
        continue;
      float a[v];
      loadFloats<v>(fresh + (i64)s * qkvRow + (part + 1) * width + c, a);
      storeFloats<v>((part == 0 ? keyCache : valueCache) + (i64)(begin + s) * C::HeadDim + c, a);
    }
  }

  __device__ __forceinline__ void attend(int j0) {
    __syncthreads();
    load(keyCache, 0, j0);
    __syncthreads();
    float score[C::TQ][C::TK] = {};
    multiplyKeys(score);
#pragma unroll
    for (int i = 0; i < C::TQ; i++)
      softmax(score[i], i, j0);
    __syncthreads();
    load(valueCache, 1, j0);
    __syncthreads();
    multiplyValues();
  }
  /// Keys (part 0) or values from j0 on, to shared memory.
  __device__ __forceinline__ void load(Kv *cache, int part, int j0) {
    for (int id = threadIdx.x; id < L::keys * perRow; id += L::threads) {
      const int r = id / perRow, c = id % perRow * v, j = j0 + r;
      float a[v] = {};
      if (j < limit && c < C::HeadDim) {
        if (C::Append && j >= begin)
          loadFloats<v>(fresh + (i64)(j - begin) * qkvRow + (part + 1) * width + c, a);
        else
          loadFloats<v>(cache + (i64)j * C::HeadDim + c, a);
        if constexpr (bytes) {
          const float keyScale = kvScales(cache, p.sizes.context, C::HeadDim)[j];
#pragma unroll
          for (int i = 0; i < v; i++)
            a[i] *= keyScale;
        }
      }
      storeFloats<v>(skv + r * L::rowStride + c, a);
    }
  }
  __device__ __forceinline__ void multiplyKeys(float (&score)[C::TQ][C::TK]) const {
#pragma unroll 4
    for (int d = 0; d < L::padded; d += 4) {
      float4 q[C::TQ], k[C::TK];
#pragma unroll
      for (int i = 0; i < C::TQ; i++)
        q[i] = *reinterpret_cast<float4 *>(sq + (ty * C::TQ + i) * L::rowStride + d);
#pragma unroll
      for (int j = 0; j < C::TK; j++)
        k[j] = *reinterpret_cast<float4 *>(skv + (tx + 16 * j) * L::rowStride + d);
#pragma unroll
      for (int i = 0; i < C::TQ; i++)
#pragma unroll
        for (int j = 0; j < C::TK; j++) {
          score[i][j] = fmaf(q[i].x, k[j].x, score[i][j]);
          score[i][j] = fmaf(q[i].y, k[j].y, score[i][j]);
          score[i][j] = fmaf(q[i].z, k[j].z, score[i][j]);
          score[i][j] = fmaf(q[i].w, k[j].w, score[i][j]);
        }
    }
  }
  /// The weights of this thread's i-th query, to shared memory.
  __device__ __forceinline__ void softmax(float (&score)[C::TK], int i, int j0) {
    const int s = q0 + ty * C::TQ + i;
    float top = state[i].max;
#pragma unroll
    for (int j = 0; j < C::TK; j++) {
      const int key = j0 + tx + 16 * j;
      bool visible = key < limit && Score<C>::sees(begin + s, key);
      if (C::Mask)
        visible =
            visible && (p.keyMask == nullptr || p.keyMask[p.b * p.sizes.maskStride + key] != 0);
      score[j] = visible ? scores(score[j], begin + s, key) : negativeInfinity();
      top = fmaxf(top, score[j]);
    }
    top = warpReduce<Max, 16>(top);
    const float keep = state[i].rescale(state[i].max, top);
    state[i].max = top;
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < C::TK; j++) {
      const float weight = state[i].rescale(score[j], top);
      sum += weight;
      sp[(ty * C::TQ + i) * L::probStride + tx + 16 * j] = weight;
    }
    state[i].sum = state[i].sum * keep + warpReduce<Sum, 16>(sum);
#pragma unroll
    for (int d = 0; d < L::groups * 4; d++)
      state[i].out[d] *= keep;
  }
  __device__ __forceinline__ void multiplyValues() {
#pragma unroll 2
    for (int j = 0; j < L::keys; j += 4) {
      float4 weight[C::TQ];
#pragma unroll
      for (int i = 0; i < C::TQ; i++)
        weight[i] = *reinterpret_cast<float4 *>(sp + (ty * C::TQ + i) * L::probStride + j);
#pragma unroll
      for (int c = 0; c < L::groups; c++) {
        const int col = (tx + 16 * c) * 4;
        if (L::padded % 64 != 0 && col >= L::padded)
          continue;
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const float4 value = *reinterpret_cast<float4 *>(skv + (j + e) * L::rowStride + col);
#pragma unroll
          for (int i = 0; i < C::TQ; i++) {
            const float4 &of = weight[i];
            const float w = e == 0 ? of.x : e == 1 ? of.y : e == 2 ? of.z : of.w;
            state[i].out[c * 4] = fmaf(w, value.x, state[i].out[c * 4]);
            state[i].out[c * 4 + 1] = fmaf(w, value.y, state[i].out[c * 4 + 1]);
            state[i].out[c * 4 + 2] = fmaf(w, value.z, state[i].out[c * 4 + 2]);
            state[i].out[c * 4 + 3] = fmaf(w, value.w, state[i].out[c * 4 + 3]);
          }
        }
      }
    }
  }

  __device__ __forceinline__ void store() const {
#pragma unroll
    for (int i = 0; i < C::TQ; i++) {
      const int s = q0 + ty * C::TQ + i;
      if (s >= p.sizes.seq)
        continue;
      const float inverse = state[i].sum > 0.0f ? 1.0f / state[i].sum : 0.0f;
#pragma unroll
      for (int c = 0; c < L::groups; c++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const int col = (tx + 16 * c) * 4 + e;
          float value[1] = {state[i].out[c * 4 + e] * inverse};
          p.given.apply(value);
          if (col < C::HeadDim)
            storeFloats<1>(p.out + (p.b * p.sizes.seq + s) * width + p.h * C::HeadDim + col, value);
        }
    }
  }
};

template <typename C, typename Given>
__device__ __forceinline__ void
attentionPrefillSimt(const typename C::X *qkv, typename C::Kv *kv, typename C::Y *out,
                     const int *past, const int *keyMask, int layer, int batchMax, int context,
                     int seq, int maskStride, float scale, int tileQ, int h, i64 b, float *shared,
                     const Given &given) {
  const AttentionSizes sizes = {layer, batchMax, context, seq, maskStride, scale};
  AttentionSimtTile<C, Given> tile(
      {qkv, kv, out, past, keyMask, sizes, tileQ, h, b, shared, given});
  tile.run();
}

} // namespace tile
} // namespace gpt2c

// cached_attention for many queries (prefill), fp16 on tensor cores. Meaning, Append and the mask
// as in attention_decode.cuh.
//
// Tile: BQ = 16 * Warps queries of one head per block, keys in tiles of BK through two shared
// buffers filled by cp.async. A warp owns 16 queries: S = Q K^T and O += P V by mma.m16n8k16,
// online softmax in fp32 registers, P rounded to fp16. Key tiles that no query of the block sees
// are skipped; only tiles that some query sees in part are masked.
//
// An int8 state (kv_append.cuh), without Append, is dequantised to fp16 on the way to shared memory.
//
// Config: Kv (__half or signed char), Y (__half or signed char: quantised, a scale for each query and
// head, where HeadDim is a multiple of 32, or one that is given), HeadDim (a multiple of 16, <= 256), Heads, Warps, BK (a
// multiple of 16), Append, Causal, Mask. Kernel: qkv f16[batch,seq,Heads+2*KvHeads,HeadDim], kv
// Kv[layers,2,batchMax,KvHeads,context,HeadDim],
//   out Y[batch,seq,Heads,HeadDim], outScale f32[batch,seq,Heads] (null unless it is written), past
//   i32[batch] or null, keyMask i32[batch,maskStride] or null, layer, batchMax, context, seq, maskStride, scale.
// Grid: (ceil(seq / BQ), Heads, batch); block: 32 * Warps; dynamic shared:
// AttentionMma<C>::sharedBytes. Bytes: 2 (past + 2 seq) HeadDim Heads + ...; flops: 4 HeadDim Heads
// (visible pairs) per sequence.
#pragma once

#include "templates/attention/parts/attention_store.cuh"
#include "templates/attention/kv_append/kv_append.cuh"

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

template <typename C, typename Given>
__device__ __forceinline__ void
attentionPrefillMma(const __half *qkv, typename C::Kv *kv, typename C::Y *out, float *outScale,
                    const Given &given, const int *past, const int *keyMask, int layer,
                    int batchMax, int context, int seq, int maskStride, float scale, int tileQ,
                    int h, i64 b, __half *shared) {
  using L = AttentionMma<C>;
  using Kv = typename C::Kv;
  static_assert(sizeof(Kv) == 2 || !C::Append);
  constexpr int width = C::Heads * C::HeadDim, chunks = C::HeadDim / 8, depth = C::HeadDim / 16;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __half *sq = shared, *sk = shared + L::queries * L::rowStride, *sv = sk + 2 * L::tileHalves;
  // What is right before computes qkv, or appends it, and nothing else of this.
  const int begin = past != nullptr ? past[b] : 0;
  waitForPredecessor();
  const int q0 = tileQ * L::queries;
  const int qEnd = min(q0 + L::queries, seq);
  int total = begin + seq;
  if (!C::Append)
    total = min(total, context);
  const int limit =
      C::Causal ? min(begin + qEnd, total) : total; // keys that some query of the tile sees

  constexpr int qkvRow = width + 2 * C::KvHeads * C::HeadDim;
  static_assert(!C::Append || C::KvHeads == C::Heads);
  const int keyHead = h / (C::Heads / C::KvHeads);
  const __half *fresh = qkv + b * seq * qkvRow + h * C::HeadDim;
  constexpr int kept = kvRow<Kv>(C::HeadDim);
  Kv *keyCache = kv + kvOffset(layer, 0, b, keyHead, batchMax, C::KvHeads, context, kept);
  Kv *valueCache = kv + kvOffset(layer, 1, b, keyHead, batchMax, C::KvHeads, context, kept);

  for (int id = threadIdx.x; id < L::queries * chunks; id += L::threads) {
    int r = id / chunks, c = id % chunks * 8;
    bool valid = q0 + r < seq;
    copyAsync16(sq + r * L::rowStride + c, valid ? fresh + (i64)(q0 + r) * qkvRow + c : fresh,
                valid);
  }
  auto load = [&](int t) {
    if (t * C::BK < limit) {
      __half *k = sk + t % 2 * L::tileHalves, *v = sv + t % 2 * L::tileHalves;
      for (int id = threadIdx.x; id < C::BK * chunks; id += L::threads) {
        int r = id / chunks, c = id % chunks * 8, j = t * C::BK + r;
        bool valid = j < limit;
        if constexpr (sizeof(Kv) == 1) {
          auto put = [&](__half *to, Kv *cache) {
            const int row = min(j, limit - 1);
            const Pack<i8, 8> pack = loadPack<8>(cache + (i64)row * C::HeadDim + c);
            const float scale = valid ? kvScales(cache, context, C::HeadDim)[row] : 0.0f;
            float a[8];
#pragma unroll
            for (int e = 0; e < 8; e++)
              a[e] = pack.get(e) * scale;
            storeFloats<8>(to + r * L::rowStride + c, a);
          };
          put(k, keyCache);
          put(v, valueCache);
        } else {
          const __half *from = keyCache + (i64)j * C::HeadDim + c,
                       *fromV = valueCache + (i64)j * C::HeadDim + c;
          if (C::Append && j >= begin) {
            from = fresh + (i64)(j - begin) * qkvRow + width + c;
            fromV = from + width;
          }
          copyAsync16(k + r * L::rowStride + c, valid ? from : fresh, valid);
          copyAsync16(v + r * L::rowStride + c, valid ? fromV : fresh, valid);
        }
      }
    }
    copyAsyncCommit();
  };
  load(0);

  if constexpr (C::Append) {
    for (int id = threadIdx.x; id < (qEnd - q0) * 2 * chunks; id += L::threads) {
      int s = q0 + id / (2 * chunks), part = id / chunks % 2, c = id % chunks * 8;
      if (begin + s < context)
        storePack((part == 0 ? keyCache : valueCache) + (i64)(begin + s) * C::HeadDim + c,
                  loadPack<8>(fresh + (i64)s * qkvRow + (part + 1) * width + c));
    }
  }

  constexpr bool keepQ = C::HeadDim <= 128;
  unsigned qf[keepQ ? depth : 1][4];
  const __half *qLane = sq + (warp * 16 + lane % 16) * L::rowStride + lane / 16 * 8;
  const float factor = scale * 1.4426950408889634f;
  float o[C::HeadDim / 8][4] = {};
  float top[2] = {negativeInfinity(), negativeInfinity()}, sum[2] = {};
  const int row0 = q0 + warp * 16 + lane / 4; // this lane's queries: row0 and row0 + 8

  const int tiles = (limit + C::BK - 1) / C::BK;
  for (int t = 0; t < tiles; t++) {
    load(t + 1);
    copyAsyncWait<1>();
    __syncthreads();
    if constexpr (keepQ) {
      if (t == 0)
#pragma unroll
        for (int i = 0; i < depth; i++)
          loadMatrix4(qf[i], qLane + i * 16);
    }
    const __half *k = sk + t % 2 * L::tileHalves, *v = sv + t % 2 * L::tileHalves;
    const int j0 = t * C::BK;

    float s[C::BK / 8][4] = {};
    const __half *kLane = k + (lane % 8 + lane / 16 * 8) * L::rowStride + lane / 8 % 2 * 8;
#pragma unroll
    for (int i = 0; i < depth; i++) {
      if constexpr (!keepQ)
        loadMatrix4(qf[0], qLane + i * 16);
#pragma unroll
      for (int j = 0; j < C::BK / 16; j++) {
        unsigned kf[4];
        loadMatrix4(kf, kLane + j * 16 * L::rowStride + i * 16);
        mma16816(s[2 * j], qf[keepQ ? i : 0], kf[0], kf[1]);
        mma16816(s[2 * j + 1], qf[keepQ ? i : 0], kf[2], kf[3]);
      }
    }

    const bool partial =
        C::Mask || j0 + C::BK > limit || (C::Causal && j0 + C::BK > begin + q0 + warp * 16 + 1);
    if (partial) {
#pragma unroll
      for (int j = 0; j < C::BK / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          int key = j0 + j * 8 + lane % 4 * 2 + e % 2;
          bool visible = key < limit && (!C::Causal || key <= begin + row0 + e / 2 * 8);
          if (C::Mask)
            visible = visible && (keyMask == nullptr || keyMask[b * maskStride + key] != 0);
          if (!visible)
            s[j][e] = negativeInfinity();
        }
    }

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

    const __half *vLane = v + (lane % 16) * L::rowStride + lane / 16 * 8;
#pragma unroll
    for (int j = 0; j < C::BK / 16; j++) {
      const unsigned p[4] = {packHalves(s[2 * j][0], s[2 * j][1]),
                             packHalves(s[2 * j][2], s[2 * j][3]),
                             packHalves(s[2 * j + 1][0], s[2 * j + 1][1]),
                             packHalves(s[2 * j + 1][2], s[2 * j + 1][3])};
#pragma unroll
      for (int d = 0; d < depth; d++) {
        unsigned vf[4];
        loadMatrix4Transposed(vf, vLane + j * 16 * L::rowStride + d * 16);
        mma16816(o[2 * d], p, vf[0], vf[1]);
        mma16816(o[2 * d + 1], p, vf[2], vf[3]);
      }
    }
    __syncthreads();
  }
  copyAsyncWait<0>();

  storeAttention<C::Heads, C::HeadDim>(o, sum, out, outScale, q0 + warp * 16, seq, h, b,
                                         given);
}

} // namespace tile
} // namespace gpt2c

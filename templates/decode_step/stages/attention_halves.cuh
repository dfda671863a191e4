// Attention in fp16; see stages/attention.cuh.
#pragma once

#include "templates/decode_step/stages/attention_parts.cuh"

namespace gpt2c::tile {
#if __CUDA_ARCH__ >= 900

/// Of vectors of 16 bytes of a row, the lane's pieces of q and k and groups of columns of v.
template <typename C> struct AttentionLanes {
  static constexpr int vectors = C::HeadDim / 8;
  static constexpr int pieces = ceilDiv(vectors, 4); ///< by the lanes' t
  static constexpr int groups = ceilDiv(vectors, 8); ///< by the lanes' g
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;

  __device__ __forceinline__ bool inPiece(int i) const { return i * 4 + t < vectors; }
  __device__ __forceinline__ int piece(int i) const { return min(i * 4 + t, vectors - 1) * 8; }
  __device__ __forceinline__ int group(int i) const { return min(i * 8 + g, vectors - 1) * 8; }

  /// Row 0 of an operand of mma16816, or column 0 of the other: lanes with g = 0.
  __device__ __forceinline__ void receive(const __half *from, uint4 (&to)[pieces]) const {
    persistent::receiveGroups(
        to, [&](int i) { return from + piece(i); }, [&](int i) { return g == 0 && inPiece(i); });
  }
  /// Column j of lane t: the score of key 2 t + j. The second half of a vector of q lies in row 8.
  __device__ __forceinline__ void scores(const uint4 (&q)[pieces], const uint4 (&k)[pieces],
                                         float scale, float (&score)[2]) const {
    float sum[2][4] = {};
#pragma unroll
    for (int i = 0; i < pieces; i++) {
      const unsigned a[4] = {q[i].x, q[i].y, q[i].z, q[i].w};
      mma16816(sum[0], a, k[i].x, k[i].y);
      mma16816(sum[1], a, k[i].z, k[i].w);
    }
    score[0] = (sum[0][0] + sum[1][2]) * scale;
    score[1] = (sum[0][1] + sum[1][3]) * scale;
  }
};

/// The new token, by the last warp: a part of its own where the unit's range ends with it, and into
/// the state.
template <typename C>
__device__ __forceinline__ void
attendToNewToken(const AttentionLanes<C> &lanes, const persistent::KeyRange<C> &range,
                 const persistent::AttentionRecord<persistent::Words> &attention,
                 const __half *token, const uint4 (&q)[AttentionLanes<C>::pieces], float scale,
                 __half *keys, __half *values, const persistent::Parts<C> &parts) {
  using namespace persistent;
  constexpr int pieces = AttentionLanes<C>::pieces, width = C::Heads * C::HeadDim;
  float score[2] = {};
  if (range.appends) {
    uint4 k[pieces] = {}, v[pieces] = {};
    lanes.receive(token + width, k);
    lanes.receive(token + 2 * width, v);
#pragma unroll
    for (int i = 0; i < pieces; i++) {
      k[i] = exchanged(k[i]);
      v[i] = exchanged(v[i]);
    }
    lanes.scores(q, k, scale, score);
    const i64 next = (i64)range.past * C::HeadDim;
#pragma unroll
    for (int i = 0; i < pieces; i++)
      if (lanes.g == 0 && lanes.inPiece(i)) {
        if (range.past < attention.context) {
          *reinterpret_cast<uint4 *>(keys + next + lanes.piece(i)) = k[i];
          *reinterpret_cast<uint4 *>(values + next + lanes.piece(i)) = v[i];
        }
        float row[8];
#pragma unroll
        for (int j = 0; j < 8; j++)
          row[j] = toFloat(reinterpret_cast<const __half *>(&v[i])[j]);
        storeFloats<8>(parts.out(warps) + lanes.piece(i), row);
      }
  } else {
    for (int d = lanes.lane; d < C::HeadDim; d += 32)
      parts.out(warps)[d] = 0.0f;
  }
  if (lanes.lane == 0)
    parts.softmax(warps) =
        range.appends ? float2{score[0], 1.0f} : float2{negativeInfinity(), 0.0f};
}

template <typename C, typename B>
__device__ __forceinline__ void
attentionHalves(B &block, const persistent::AttentionRecord<persistent::Words> &attention) {
  using namespace persistent;
  using Lanes = AttentionLanes<C>;
  constexpr int vectors = Lanes::vectors, pieces = Lanes::pieces, groups = Lanes::groups;
  constexpr int width = C::Heads * C::HeadDim, step = 16 * warps;
  const Lanes lanes;
  const int warp = threadIdx.x / 32, lane = lanes.lane, g = lanes.g, t = lanes.t;
  const int units = attention.stage.units.count();
  if (warp >= warps)
    return finishAttention<C>(block, attention);
  const float scale = scoreFactor(attention.scale);

  for (int unit = attention.stage.units.first(); unit < units; unit += block.blocks) {
    const KeyRange<C> range(block, attention, unit);
    __half *keys = attention.kv.as<__half>() + range.keys, *values = keys + range.toValues;

    // Keys beyond the end are the last one again, hidden: no load is conditional.
    uint4 key[2][pieces], value[4][groups];
    auto at = [&](int j) { return (i64)max(0, min(j, range.last - 1)) * C::HeadDim; };
    auto fetchKeys = [&](int base) {
#pragma unroll
      for (int n = 0; n < 2; n++)
#pragma unroll
        for (int i = 0; i < pieces; i++)
          key[n][i] =
              __ldcg(reinterpret_cast<const uint4 *>(keys + at(base + n * 8 + g) + lanes.piece(i)));
    };
    auto fetchValues = [&](int base) {
#pragma unroll
      for (int m = 0; m < 4; m++)
#pragma unroll
        for (int i = 0; i < groups; i++)
          value[m][i] = __ldcg(reinterpret_cast<const uint4 *>(
              values + at(base + m / 2 * 8 + 2 * t + m % 2) + lanes.group(i)));
    };
    int base = range.first + warp * 16;
    fetchKeys(base);
    fetchValues(base);

    const __half *token = block.template channel<__half>(attention.qkv) + range.row * 3 * width +
                          range.head * C::HeadDim;
    uint4 q[pieces] = {};
    lanes.receive(token, q);
    // Of row 0: lane t has the sums of columns 16 t + 64 i + 8 c + j in out[i][j][c].
    float out[groups][8][4] = {}, sum[4] = {}, top = leastMaximum;
#pragma unroll 1
    for (bool first = true; first || base < range.last; first = false) {
      float score[2][2];
      lanes.scores(q, key[0], scale, score[0]);
      lanes.scores(q, key[1], scale, score[1]);
      const bool more = base + step < range.last;
      if (more) // on their way while these keys are worked on
        fetchKeys(base + step);
      float most = top;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        float &s = score[j / 2][j % 2];
        s = base + j / 2 * 8 + 2 * t + j % 2 < range.last ? s : negativeInfinity();
        most = fmaxf(most, s);
      }
      most = warpReduce<Max, 4>(most);
      unsigned p[4] = {};
      p[0] = packHalves(exp2Approximate(score[0][0] - most), exp2Approximate(score[0][1] - most));
      p[2] = packHalves(exp2Approximate(score[1][0] - most), exp2Approximate(score[1][1] - most));
      if (!first) {
        const float factor = exp2Approximate(top - most);
        sum[0] *= factor;
#pragma unroll
        for (int i = 0; i < groups; i++)
#pragma unroll
          for (int j = 0; j < 8; j++)
#pragma unroll
            for (int c = 0; c < 2; c++)
              out[i][j][c] *= factor;
      }
      top = most;
      constexpr unsigned ones = 0x3c003c00u;
      mma16816(sum, p, ones, ones);
#pragma unroll
      for (int i = 0; i < groups; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) {
          auto pairOf = [&](const uint4 &a, const uint4 &b) {
            auto word = [&](const uint4 &v) {
              return reinterpret_cast<const unsigned *>(&v)[j / 2];
            };
            return __byte_perm(word(a), word(b), j % 2 ? 0x7632 : 0x5410);
          };
          mma16816(out[i][j], p, pairOf(value[0][i], value[1][i]),
                   pairOf(value[2][i], value[3][i]));
        }
      base += step;
      if (more)
        fetchValues(base);
    }

    Parts<C> parts{block.nextSums()};
    if (g == 0)
#pragma unroll
      for (int i = 0; i < groups; i++)
#pragma unroll
        for (int c = 0; c < 2; c++)
          if (i * 8 + 2 * t + c < vectors)
#pragma unroll
            for (int j = 0; j < 8; j += 4)
              *reinterpret_cast<float4 *>(parts.out(warp) + (i * 8 + 2 * t + c) * 8 + j) =
                  float4{out[i][j][c], out[i][j + 1][c], out[i][j + 2][c], out[i][j + 3][c]};
    if (lane == 0)
      parts.softmax(warp) = float2{top, sum[0]};
    if (warp == warps - 1)
      attendToNewToken(lanes, range, attention, token, q, scale, keys, values, parts);
    block.sync();
  }
}

#endif
} // namespace gpt2c::tile

// Attention in fp32; see stages/attention.cuh.
#pragma once

#include "templates/decode_step/stages/attention_parts.cuh"

namespace gpt2c::tile {
#if __CUDA_ARCH__ >= 900

/// A key's or value's row, dealt out to `lanes` lanes in vectors of 16 bytes.
template <typename C> struct AttentionKeyLanes {
  using X = typename C::X;
  static constexpr int v = elementsPer16Bytes<X>();
  static constexpr int vectors = C::HeadDim / v;
  static constexpr int lanes = minInt(32, floorPowerOfTwo(2 * vectors - 1)); ///< of a key
  static constexpr int perLane = ceilDiv(vectors, lanes), elements = perLane * v;
  const int member = threadIdx.x % 32 % lanes;

  __device__ __forceinline__ bool inside(int i) const {
    return vectors % lanes == 0 || i * lanes + member < vectors;
  }
  __device__ __forceinline__ int offset(int i) const { return (i * lanes + member) * v; }
  /// The lane's elements of a row of a channel.
  __device__ __forceinline__ void receive(const X *from, float (&to)[elements]) const {
    uint4 words[perLane] = {};
    persistent::receiveGroups(
        words, [&](int i) { return from + offset(i); }, [&](int i) { return inside(i); });
#pragma unroll
    for (int d = 0; d < elements; d++)
      to[d] = inside(d / v) ? toFloat(reinterpret_cast<const X *>(&words[d / v])[d % v]) : 0.0f;
  }
};

template <typename C, typename B>
__device__ __forceinline__ void
attentionFloats(B &block, const persistent::AttentionRecord<persistent::Words> &attention) {
  using namespace persistent;
  using X = typename C::X;
  constexpr int width = C::Heads * C::HeadDim;
  using Lanes = AttentionKeyLanes<C>;
  constexpr int v = Lanes::v, lanes = Lanes::lanes, perLane = Lanes::perLane;
  constexpr int keysPerWarp = 32 / lanes, keysPerBlock = keysPerWarp * warps;
  constexpr int unroll = 4, elements = Lanes::elements;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = lane / lanes;
  const Lanes of;
  const int units = attention.stage.units.count();
  if (warp >= warps)
    return finishAttention<C>(block, attention);
  const float scale = scoreFactor(attention.scale);

  for (int unit = attention.stage.units.first(); unit < units; unit += block.blocks) {
    const KeyRange<C> range(block, attention, unit);
    X *keys = attention.kv.as<X>() + range.keys, *values = keys + range.toValues;

    // Keys beyond the end are the last one again, hidden: no load is conditional.
    Pack<X, v> key[unroll][perLane], value[unroll][perLane];
    auto fetch = [&](int base) {
#pragma unroll
      for (int u = 0; u < unroll; u++) {
        const i64 j = max(0, min(base + u * keysPerBlock + group, range.last - 1));
#pragma unroll
        for (int i = 0; i < perLane; i++) {
          const i64 at = j * C::HeadDim + (of.inside(i) ? of.offset(i) : 0);
          key[u][i] = {__ldcg(reinterpret_cast<const uint4 *>(keys + at))};
          value[u][i] = {__ldcg(reinterpret_cast<const uint4 *>(values + at))};
        }
      }
    };
    int base = range.first + warp * keysPerWarp;
    fetch(base);

    const X *token =
        block.template channel<X>(attention.qkv) + range.row * 3 * width + range.head * C::HeadDim;
    float q[elements];
    of.receive(token, q);
#pragma unroll
    for (int d = 0; d < elements; d++)
      q[d] *= scale;

    SoftmaxState<elements> softmax;
    while (base < range.last) {
      float score[unroll], top = softmax.max;
#pragma unroll
      for (int u = 0; u < unroll; u++) {
        float dot = 0.0f;
#pragma unroll
        for (int d = 0; d < elements; d++)
          dot = fmaf(q[d], key[u][d / v].get(d % v), dot);
        dot = warpReduce<Sum, lanes>(dot);
        score[u] = base + u * keysPerBlock + group < range.last ? dot : negativeInfinity();
        top = fmaxf(top, score[u]);
      }
      softmax.raise(top);
#pragma unroll
      for (int u = 0; u < unroll; u++) {
        float row[elements];
#pragma unroll
        for (int d = 0; d < elements; d++)
          row[d] = value[u][d / v].get(d % v);
        softmax.add(score[u], row);
      }
      base += keysPerBlock * unroll;
      if (base < range.last)
        fetch(base);
    }
    mergeLanes<lanes>(softmax);

    Parts<C> parts{block.nextSums()};
    auto store = [&](int part, const float(&from)[elements], float top, float sum) {
      if (lane == 0)
        parts.softmax(part) = float2{top, sum};
      if (group == 0)
#pragma unroll
        for (int d = 0; d < elements; d++)
          if (of.inside(d / v))
            parts.out(part)[of.offset(d / v) + d % v] = from[d];
    };
    store(warp, softmax.out, softmax.max, softmax.sum);
    if (warp == warps - 1) {
      float k[elements], row[elements] = {}, dot = negativeInfinity();
      if (range.appends) {
        of.receive(token + width, k);
        of.receive(token + 2 * width, row);
        dot = 0.0f;
#pragma unroll
        for (int d = 0; d < elements; d++)
          dot = fmaf(q[d], k[d], dot);
        dot = warpReduce<Sum, lanes>(dot);
        if (group == 0 && range.past < attention.context)
#pragma unroll
          for (int d = 0; d < elements; d++)
            if (of.inside(d / v)) {
              const i64 at = (i64)range.past * C::HeadDim + of.offset(d / v) + d % v;
              keys[at] = fromFloat<X>(k[d]);
              values[at] = fromFloat<X>(row[d]);
            }
      }
      store(warps, row, dot, range.appends ? 1.0f : 0.0f);
    }
    block.sync();
  }
}

#endif
} // namespace gpt2c::tile

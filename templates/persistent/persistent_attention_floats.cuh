// Attention in fp32; see persistent_attention.cuh.
#pragma once

#include "templates/persistent/persistent_attention_parts.cuh"

namespace gpt2c::tile {
#if __CUDA_ARCH__ >= 900

template <typename C, typename B>
__device__ __forceinline__ void
attentionFloats(B &block, const persistent::AttentionRecord<persistent::Words> &attention) {
  using namespace persistent;
  using X = typename C::X;
  constexpr int width = C::Heads * C::HeadDim;
  constexpr int v = elementsPer16Bytes<X>();
  constexpr int vectors = C::HeadDim / v;
  constexpr int lanes = minInt(32, floorPowerOfTwo(2 * vectors - 1)); // of a key
  constexpr int perLane = ceilDiv(vectors, lanes);
  constexpr int keysPerWarp = 32 / lanes, keysPerBlock = keysPerWarp * warps;
  constexpr int unroll = 4, elements = perLane * v;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = lane / lanes, member = lane % lanes;
  const int units = attention.stage.units.count();
  if (warp >= warps)
    return finishAttention<C>(block, attention);
  const float scale = attention.scale * 1.4426950408889634f;
  auto inside = [&](int i) { return vectors % lanes == 0 || i * lanes + member < vectors; };
  auto offset = [&](int i) { return (i * lanes + member) * v; };

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
          const i64 at = j * C::HeadDim + (inside(i) ? offset(i) : 0);
          key[u][i] = {__ldcg(reinterpret_cast<const uint4 *>(keys + at))};
          value[u][i] = {__ldcg(reinterpret_cast<const uint4 *>(values + at))};
        }
      }
    };
    int base = range.first + warp * keysPerWarp;
    fetch(base);

    const X *token =
        block.template channel<X>(attention.qkv) + range.row * 3 * width + range.head * C::HeadDim;
    auto receive = [&](const X *from, float(&to)[elements]) {
      uint4 words[perLane] = {};
      Patience patience;
      bool missing;
      do {
        missing = false;
#pragma unroll
        for (int i = 0; i < perLane; i++)
          loadGroup(words[i], from + offset(i), inside(i));
#pragma unroll
        for (int i = 0; i < perLane; i++)
          missing |= inside(i) && !written(words[i]);
        patience.spend();
      } while (__any_sync(fullWarp, missing));
#pragma unroll
      for (int d = 0; d < elements; d++)
        to[d] = inside(d / v) ? toFloat(reinterpret_cast<const X *>(&words[d / v])[d % v]) : 0.0f;
    };
    float q[elements];
    receive(token, q);
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
          if (inside(d / v))
            parts.out(part)[offset(d / v) + d % v] = from[d];
    };
    store(warp, softmax.out, softmax.max, softmax.sum);
    if (warp == warps - 1) {
      float k[elements], row[elements] = {}, dot = negativeInfinity();
      if (range.appends) {
        receive(token + width, k);
        receive(token + 2 * width, row);
        dot = 0.0f;
#pragma unroll
        for (int d = 0; d < elements; d++)
          dot = fmaf(q[d], k[d], dot);
        dot = warpReduce<Sum, lanes>(dot);
        if (group == 0 && range.past < attention.context)
#pragma unroll
          for (int d = 0; d < elements; d++)
            if (inside(d / v)) {
              const i64 at = (i64)range.past * C::HeadDim + offset(d / v) + d % v;
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

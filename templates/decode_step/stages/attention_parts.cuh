// What a unit of attention works on, and how its warps' results become one; see
// stages/attention.cuh.
#pragma once

#include "templates/attention/decode/attention_decode.cuh"
#include "templates/attention/score.cuh"
#include "templates/decode_step/stages/block.cuh"

namespace gpt2c::persistent {

#if __CUDA_ARCH__ >= 900

/// What a unit works on.
template <typename C> struct KeyRange {
  int row, head, past, first, last; ///< keys [first, last) of the state
  bool appends;                     ///< and the new one
  i64 keys, toValues;               ///< elements from the state's begin

  template <typename B>
  __device__ __forceinline__ KeyRange(const B &block, const AttentionRecord<Words> &of, int unit) {
    const int split = unit % C::Splits;
    head = unit / C::Splits % C::Heads;
    row = unit / (C::Splits * C::Heads);
    past = *(volatile int *)(block.past + row);
    const int each = past / C::Splits + 1, context = of.context, batchMax = of.batchMax;
    first = min(split * each, past);
    last = min(first + each, past);
    appends = split == past / each;
    keys = kvOffset(of.layer, 0, min(row, of.batch - 1), head, batchMax, C::Heads, context,
                    C::HeadDim);
    toValues = (i64)batchMax * C::Heads * context * C::HeadDim;
  }
};

/// Unnormalised outputs of the warps and of the new token, f32[parts,HeadDim], and their maxima and
/// sums, f32[parts,2].
template <typename C> struct Parts {
  static constexpr int parts = warps + 1;
  static constexpr int bytes = parts * (C::HeadDim + 2) * 4;
  float *memory;

  __device__ __forceinline__ float *out(int part) const { return memory + part * C::HeadDim; }
  __device__ __forceinline__ float2 &softmax(int part) const {
    return reinterpret_cast<float2 *>(memory + parts * C::HeadDim)[part];
  }
};

/// At least as large as any maximum is taken to be: that of no keys differs from it by infinity.
constexpr float leastMaximum = -1e30f;

/// Merges the parts and publishes, by the finishing warps.
template <typename C, typename B>
__device__ __forceinline__ void publishParts(const B &block,
                                             const AttentionRecord<Words> &attention, int unit,
                                             const Parts<C> &parts) {
  using X = typename C::X;
  constexpr int v = 4, count = C::HeadDim / v;
  static_assert(C::HeadDim % elementsPer16Bytes<X>() == 0);
#pragma unroll 1
  for (int first = 0; first < count; first += Layout<typename B::Config>::finishers) {
    const int i = first + (int)threadIdx.x - multipliers, d = min(i, count - 1) * v;
    float2 softmax[Parts<C>::parts];
    float top = leastMaximum, sum = 0.0f, out[v] = {};
#pragma unroll
    for (int p = 0; p < Parts<C>::parts; p++) {
      softmax[p] = parts.softmax(p);
      top = fmaxf(top, softmax[p].x);
    }
#pragma unroll
    for (int p = 0; p < Parts<C>::parts; p++) {
      const float weight = exp2Approximate(softmax[p].x - top);
      const float4 part = *reinterpret_cast<const float4 *>(parts.out(p) + d);
      sum = fmaf(weight, softmax[p].y, sum);
      out[0] = fmaf(weight, part.x, out[0]);
      out[1] = fmaf(weight, part.y, out[1]);
      out[2] = fmaf(weight, part.z, out[2]);
      out[3] = fmaf(weight, part.w, out[3]);
    }
    const float scale = sum > 0.0f ? __fdividef(1.0f, sum) : 0.0f;
#pragma unroll
    for (int j = 0; j < v; j++)
      out[j] *= scale;
    publish(block.destination(attention.out), X(), (i64)unit * C::HeadDim + i * v, out, i < count);
    if (C::Splits > 1 && i < B::Config::Copies) {
      const Destination to = block.destination(attention.maxima);
      publishPair(to.first + unit * 8 + i * to.bytes,
                  (u64)channelWord(sum) << 32 | __float_as_uint(top));
    }
  }
}

template <typename C, typename B>
__device__ __forceinline__ void finishAttention(B &block, const AttentionRecord<Words> &attention) {
  const int units = attention.stage.units.count();
  for (int unit = attention.stage.units.first(); unit < units; unit += block.blocks) {
    Parts<C> parts{block.nextSums()};
    block.sync();
    publishParts(block, attention, unit, parts);
  }
}

#endif
} // namespace gpt2c::persistent

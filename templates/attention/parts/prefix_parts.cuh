// Parts of a softmax that attention_prefix leaves of a prefix that sequences share, for the kernel
// that computes the rest of each sequence:
//
//   parts f32[batch,Heads,Parts,HeadDim+8]: maximum (base 2), sum of weights, six that mean
//     nothing, and the unnormalised output
//   prefixes i32[batch,2]: where a sequence's own keys begin, and how many parts there are
#pragma once

#include "templates/attention/parts/softmax_state.cuh"

namespace gpt2c {

/// C: HeadDim, and Parts, the most of a sequence; 0: there are none.
template <typename C> struct PrefixParts {
  static constexpr int D = C::HeadDim, head = 8, stride = head + D;

  /// Where a sequence's own keys begin.
  static __device__ __forceinline__ int beginOf(const int *prefixes, i64 b) {
    if constexpr (C::Parts > 0)
      return prefixes[2 * b];
    return 0;
  }
  /// What all parts of query `row`, of sequence b, are together, in order: by a warp, to out[D];
  /// every lane gets maximum and sum. Zeros and -infinity where there are none.
  static __device__ __forceinline__ float2 merge(const float *parts, const int *prefixes, i64 b,
                                                 i64 row, float *out) {
    static_assert(C::Parts > 0 && C::Parts <= 32);
    const int lane = threadIdx.x % 32, count = min(prefixes[2 * b + 1], C::Parts);
    const float *from = parts + row * C::Parts * stride;
    const bool mine = lane < count;
    const float max = mine ? __ldcg(from + lane * stride) : negativeInfinity();
    const float sum = mine ? __ldcg(from + lane * stride + 1) : 0.0f;
    float value[C::Parts], share[C::Parts]; // values are on their way before shares are known
    auto load = [&](int d) {
#pragma unroll
      for (int i = 0; i < C::Parts; i++)
        value[i] = i < count && d < D ? __ldcg(from + i * stride + head + d) : 0.0f;
    };
    load(lane);
    const float top = warpReduce<Max>(max), weight = SoftmaxState<1>::rescale(max, top);
#pragma unroll
    for (int i = 0; i < C::Parts; i++)
      share[i] = __shfl_sync(fullWarp, weight, i);
#pragma unroll
    for (int first = 0; first < D; first += 32) {
      const int d = first + lane;
      float o = 0.0f;
#pragma unroll
      for (int i = 0; i < C::Parts; i++)
        o = fmaf(share[i], value[i], o);
      if (d < D)
        out[d] = o;
      if (first + 32 < D)
        load(d + 32);
    }
    return {top, warpReduce<Sum>(sum * weight)};
  }
  /// The same in memory that a block's warps share: the last of Splits blocks has the prefix, for
  /// the others it is nothing.
  static __device__ __forceinline__ void take(int split, const float *parts, const int *prefixes,
                                              i64 b, i64 row, float &max, float &sum, float *out) {
    float2 of = {negativeInfinity(), 0.0f};
    if (split == C::Splits - 1)
      of = merge(parts, prefixes, b, row, out);
    else
      for (int d = threadIdx.x % 32; d < D; d += 32)
        out[d] = 0.0f;
    if (threadIdx.x % 32 == 0) {
      max = of.x;
      sum = of.y;
    }
  }
};

} // namespace gpt2c

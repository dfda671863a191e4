// The online softmax of a lane's share of a head.
#pragma once

#include "templates/device/common.cuh"

namespace gpt2c {

/// The state of an online softmax: maximum (base 2 exponent), sum and the unnormalised output.
template <int N> struct SoftmaxState {
  float max = negativeInfinity();
  float sum = 0.0f;
  float out[N] = {};

  /// What to multiply a state of maximum `from` by when its maximum becomes `to`.
  static __device__ __forceinline__ float rescale(float from, float to) {
    return from == negativeInfinity() ? 0.0f : exp2f(from - to);
  }
  /// Makes the maximum `top`, which is at least as large.
  __device__ __forceinline__ void raise(float top) {
    const float keep = rescale(max, top);
    max = top;
    sum *= keep;
#pragma unroll
    for (int d = 0; d < N; d++)
      out[d] *= keep;
  }
  /// Takes in a key of a score of at most the maximum.
  __device__ __forceinline__ void add(float score, const float (&value)[N]) {
    const float p = rescale(score, max);
    sum += p;
#pragma unroll
    for (int d = 0; d < N; d++)
      out[d] = fmaf(p, value[d], out[d]);
  }
};

/// Merges the states of the groups of Lanes neighbouring lanes of a warp; every group gets it.
template <int Lanes, int N> __device__ __forceinline__ void mergeLanes(SoftmaxState<N> &state) {
#pragma unroll
  for (int step = Lanes; step < 32; step *= 2) {
    const float otherMax = __shfl_xor_sync(fullWarp, state.max, step);
    const float top = fmaxf(state.max, otherMax);
    const float mine = state.rescale(state.max, top), other = state.rescale(otherMax, top);
    state.max = top;
    state.sum = state.sum * mine + __shfl_xor_sync(fullWarp, state.sum, step) * other;
#pragma unroll
    for (int d = 0; d < N; d++)
      state.out[d] = state.out[d] * mine + __shfl_xor_sync(fullWarp, state.out[d], step) * other;
  }
}

} // namespace gpt2c

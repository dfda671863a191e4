// Statistics of x for clusters/clusters.cuh: of each slice mean and sum of squared differences;
// those of all slices make the row's (Chan, Golub, LeVeque 1979).
#pragma once

#include "templates/decode_step/clusters/step.cuh"

namespace gpt2c::clusters {
#if __CUDA_ARCH__ >= 900

/// Of fp16 without a gain x is the operands of a product: with itself and with ones.
template <typename C>
template <bool Gained>
__device__ __forceinline__ void Step<C>::sendStatistics(const float2 *to, Barrier &barrier,
                                                        NormKind norm) {
  float mean = 0.0f, squares = 0.0f;
  if constexpr (halves && !Gained) {
    constexpr unsigned ones = 0x3c003c00;
    constexpr int pieces = L::slice / 32;
    float sum[4][4] = {};
    const auto x = vectorIn(shared.x);
#pragma unroll
    for (int i = 0; i < pieces; i++) {
      const uint4 b = x(i);
      const unsigned low[4] = {b.x, ones, b.y, ones}, high[4] = {b.z, ones, b.w, ones};
      mma16816(sum[2 * i % 4], low, b.x, b.y);
      mma16816(sum[(2 * i + 1) % 4], high, b.z, b.w);
    }
    if (norm == NormKind::Layer)
      mean = ((sum[0][2] + sum[1][2]) + (sum[2][2] + sum[3][2])) * (1.0f / L::slice);
    squares = fmaxf(fmaf(-L::slice * mean, mean, (sum[0][0] + sum[1][0]) + (sum[2][0] + sum[3][0])),
                    0.0f);
  } else {
    // The same in each eight lanes.
    constexpr int each = L::slice / 8;
    float v[each];
#pragma unroll
    for (int i = 0; i < each; i += 4)
      loadFloats<4>(&shared.plain[8 * i + lane % 8 * 4], reinterpret_cast<float(&)[4]>(v[i]));
    if (norm == NormKind::Layer)
      mean = treeSum(v) * (1.0f / each);
#pragma unroll
    for (int i = 0; i < each; i++)
      v[i] = (v[i] - mean) * (v[i] - mean);
    squares = treeSum(v);
#pragma unroll
    for (int lanes = 1; lanes < 8; lanes *= 2) {
      const float otherMean = __shfl_xor_sync(fullWarp, mean, lanes),
                  otherSquares = __shfl_xor_sync(fullWarp, squares, lanes),
                  difference = otherMean - mean;
      squares = fmaf(difference * difference, 0.5f * each * lanes, squares + otherSquares);
      mean = 0.5f * (mean + otherMean);
    }
  }
  if (lane < ranks)
    send(remote(sharedAddress(to + rank), lane), mean, squares, remote(barrier.address(), lane));
}

template <typename C>
__device__ __forceinline__ typename Step<C>::Moments
Step<C>::moments(const float2 (&of)[ranks], const FirstProduct<Words> &product) {
  float2 part[ranks];
#pragma unroll
  for (int i = 0; i < ranks; i += 2) {
    const float4 two = *reinterpret_cast<const float4 *>(&of[i]);
    part[i] = {two.x, two.y};
    part[i + 1] = {two.z, two.w};
  }
  float v[ranks];
#pragma unroll
  for (int i = 0; i < ranks; i++)
    v[i] = part[i].x;
  const float mean = treeSum(v) * (1.0f / ranks);
  if constexpr (halves) {
    // Of the means no differences: squares do not wait for the mean.
    float of[2] = {};
#pragma unroll
    for (int i = 0; i < ranks; i++) {
      of[i % 2] = fmaf(part[i].x, part[i].x, of[i % 2]);
      v[i] = part[i].y;
    }
    const float between = fmaf(-ranks * mean, mean, of[0] + of[1]);
    return {persistent::inverseRoot(fmaf(fmaf(fmaxf(between, 0.0f), L::slice, treeSum(v)),
                                         1.0f / C::D, product.epsilon)) *
                product.normScale,
            mean};
  }
#pragma unroll
  for (int i = 0; i < ranks; i++)
    v[i] = fmaf((part[i].x - mean) * (part[i].x - mean), (float)L::slice, part[i].y);
  const float squares = treeSum(v);
  return {persistent::inverseRoot(fmaf(squares, 1.0f / C::D, product.epsilon)) * product.normScale,
          mean};
}

#endif
} // namespace gpt2c::clusters

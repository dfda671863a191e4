// The products of fp32 attention by 3xTF32 (tf32.cuh): a warp's 16 queries with a tile of keys, and
// their weights with its values. Keys and values are rows of floats in shared memory, Stride apart;
// Tiles eights of keys.
//
// The order of keys within a product is free, so what a lane holds of the scores is what it needs
// of the weights: k slots t and t + 4 are keys 2t and 2t + 1.
#pragma once

#include "templates/device/tf32.cuh"

namespace gpt2c::tile {

/// sums[j] (+)= a * b[j], small products first. With First, sums are overwritten.
template <bool First, int Tiles>
__device__ __forceinline__ void multiplyTf32(float (&sums)[Tiles][4], const tf32::Split<4> &a,
                                             const tf32::Split<2> (&b)[Tiles]) {
#pragma unroll
  for (int j = 0; j < Tiles; j++)
    tf32::mma1688<!First>(sums[j], a.low, b[j].high[0], b[j].high[1]);
#pragma unroll
  for (int j = 0; j < Tiles; j++)
    tf32::mma1688(sums[j], a.high, b[j].low[0], b[j].low[1]);
#pragma unroll
  for (int j = 0; j < Tiles; j++)
    tf32::mma1688(sums[j], a.high, b[j].high[0], b[j].high[1]);
}

/// Elements 8 i to 8 i + 7 of the keys; an even number of tiles.
template <int Stride, int Tiles>
__device__ __forceinline__ void loadKeysTf32(tf32::Split<2> (&keys)[Tiles], const float *k, int i,
                                             int lane) {
  const float *kLane = k + (lane % 8 + lane / 16 * 8) * Stride + lane / 8 % 2 * 4;
#pragma unroll
  for (int j = 0; j < Tiles / 2; j++) {
    unsigned bits[4];
    loadMatrix4(bits, kLane + j * 16 * Stride + i * 8);
#pragma unroll
    for (int e = 0; e < 4; e++)
      keys[2 * j + e / 2].set(e % 2, bits[e]);
  }
}

/// Of `depth` eights of columns, those whose operands are split at a time.
__host__ __device__ constexpr int columnsAtATime(int depth) {
  for (int group : {8, 6, 5, 3, 2})
    if (depth % group == 0)
      return group;
  return 1;
}

/// o = keep o + s V, in Depth eights of columns; `keep` of a lane's two rows.
template <int Stride, int Depth, int Tiles>
__device__ __forceinline__ void addValuesTf32(float (&o)[Depth][4], const float (&s)[Tiles][4],
                                              const float (&keep)[2], const float *v, int lane) {
  constexpr int group = columnsAtATime(Depth);
  tf32::Split<4> a[Tiles];
#pragma unroll
  for (int j = 0; j < Tiles; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      a[j].set(e, __float_as_uint(s[j][e % 2 * 2 + e / 2]));
  const float *vLane = v + lane % 4 * 2 * Stride + lane / 4;
#pragma unroll
  for (int d0 = 0; d0 < Depth; d0 += group) {
    float products[group][4];
#pragma unroll
    for (int j = 0; j < Tiles; j++) {
      tf32::Split<2> values[group];
#pragma unroll
      for (int d = 0; d < group; d++)
#pragma unroll
        for (int e = 0; e < 2; e++)
          values[d].set(e, __float_as_uint(vLane[(j * 8 + e) * Stride + (d0 + d) * 8]));
      if (j == 0)
        multiplyTf32<true>(products, a[j], values);
      else
        multiplyTf32<false>(products, a[j], values);
    }
#pragma unroll
    for (int d = 0; d < group; d++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        o[d0 + d][e] = fmaf(o[d0 + d][e], keep[e / 2], products[d][e]);
  }
}

} // namespace gpt2c::tile

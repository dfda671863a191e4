// The online softmax of attention_prefill_wgmma, in registers: the scores of 64 queries and 64
// keys, an accumulator of wgmma, become weights, the A operand of the next product.
#pragma once

#include "templates/device/wgmma.cuh"

namespace gpt2c::tile {

/// A lane has queries lane / 4 and + 8 of its warp's 16: `half` 0 and 1 below. Exponentials are
/// base 2. X: the type of weights.
template <typename X> struct AttentionWgmmaSoftmax {
  /// The most that weights of a tile may add up to while `top` is kept.
  static constexpr float mostAdded = Mma<X>::bfloat ? 0x1p60f : 32768.0f;
  float s[8][4]; // scores, then weights
  unsigned p[4][4];
  float top[2] = {negativeInfinity(), negativeInfinity()}; // what weights are relative to
  float sum[2] = {};                                       // this lane's share of the row sums
  float keep[2];  // rescales accumulators and row sums of the tiles before
  float added[2]; // what weigh would add to `sum`
  float factor;   // of the scores

  /// The k-th score of a query.
  __device__ __forceinline__ float &at(int half, int k) { return s[k / 2][half * 2 + k % 2]; }

  __device__ __forceinline__ void clearScores() {
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        s[j][e] = 0.0f;
  }

  /// Scores become weights relative to the largest so far, `top` and `sum` follow.
  __device__ __forceinline__ void weighByLargest() {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float m[4];
#pragma unroll
      for (int j = 0; j < 4; j++)
        m[j] = fmaxf(at(half, j), at(half, j + 4));
#pragma unroll
      for (int j = 8; j < 16; j++)
        m[j % 4] = fmaxf(m[j % 4], at(half, j));
      const float most = fmaxf(
          top[half], factor * warpReduce<Max, 4>(fmaxf(fmaxf(m[0], m[1]), fmaxf(m[2], m[3]))));
      const float base = most == negativeInfinity() ? 0.0f : most;
      keep[half] = exp2Approximate(top[half] - base);
      top[half] = most;
      sum[half] = fmaf(sum[half], keep[half], exponentials(half, base));
    }
  }
  /// Scores become weights relative to `top` as it is, which need not be the largest score; `added`
  /// follows. Whether they fit half precision, of which the row sums tell; without a key so far,
  /// none does.
  __device__ __forceinline__ bool weighByTop() {
    bool fits = true;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      added[half] = exponentials(half, top[half]);
      fits = fits && added[half] <= mostAdded;
    }
    return fits;
  }
  __device__ __forceinline__ void takeAdded() {
    sum[0] += added[0];
    sum[1] += added[1];
  }
  __device__ __forceinline__ void pack() {
#pragma unroll
    for (int j = 0; j < 8; j++) {
      p[j / 2][j % 2 * 2] = Mma<X>::pack(s[j][0], s[j][1]);
      p[j / 2][j % 2 * 2 + 1] = Mma<X>::pack(s[j][2], s[j][3]);
    }
  }

private:
  /// The weights of a query relative to `base`, and their sum.
  __device__ __forceinline__ float exponentials(int half, float base) {
    float part[4];
#pragma unroll
    for (int j = 0; j < 16; j++) {
      at(half, j) = exp2Approximate(fmaf(at(half, j), factor, -base));
      part[j % 4] = j < 4 ? at(half, j) : part[j % 4] + at(half, j);
    }
    return (part[0] + part[1]) + (part[2] + part[3]);
  }
};

} // namespace gpt2c::tile

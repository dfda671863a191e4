// Weights of clusters/clusters.cuh in a warp's registers, and their products.
#pragma once

#include "templates/decode_step/clusters/block.cuh"

namespace gpt2c::clusters {
#if __CUDA_ARCH__ >= 900

/// 16 rows of weights of a warp, of which lane (g, t) has 2 g and 2 g + 1.
/// Lane t has vectors t, t + 4, .. of a row of K elements: of fp32 those of both rows, of fp16
/// the operands that they are.
template <typename C, int K, int Pitch> struct WeightTile {
  using T = typename C::T;
  using W = typename C::W;
  static constexpr bool halves = sizeof(T) == 2;
  static constexpr int vector = elementsPer16Bytes<T>(), pieces = K / (4 * vector);
  static_assert(K % (4 * vector) == 0);
  uint4 w[pieces][2];

  __device__ __forceinline__ void set(int i, const uint4 &a, const uint4 &b) {
    if constexpr (halves) {
      w[i][0] = {a.x, b.x, a.y, b.y};
      w[i][1] = {a.z, b.z, a.w, b.w};
    } else {
      w[i][0] = a;
      w[i][1] = b;
    }
  }
  static __device__ __forceinline__ uint4 convert(uint2 words) {
    const HalfPairs a = Operand<W>::halves(words.x), b = Operand<W>::halves(words.y);
    return {a.low, a.high, b.low, b.high};
  }
  /// Where piece i of row j is, in bytes.
  static __device__ __forceinline__ int at(int i, int j, int t) {
    return (j * Pitch + (i * 4 + t) * vector) * (int)sizeof(W);
  }
  /// rows: the first of the lane's two rows in shared memory, Pitch elements from each other.
  /// swizzle: what offsets from it are changed by.
  __device__ __forceinline__ void load(const char *rows, int t, int swizzle = 0) {
#pragma unroll
    for (int i = 0; i < pieces; i++) {
      uint4 two[2];
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const char *from = rows + (at(i, j, t) ^ swizzle);
        if constexpr (sizeof(W) == sizeof(T)) {
          two[j] = *reinterpret_cast<const uint4 *>(from);
        } else if constexpr (halves) {
          two[j] = convert(*reinterpret_cast<const uint2 *>(from));
        } else {
          const unsigned word = *reinterpret_cast<const unsigned *>(from);
          const float4 v = Operand<W>::floats(word);
          two[j] = {__float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z),
                    __float_as_uint(v.w)};
        }
      }
      set(i, two[0], two[1]);
    }
  }
  static constexpr int chains = pieces % 2 ? 3 : 4; ///< that do not wait for each other
  template <typename X> __device__ __forceinline__ void mma(float (&sum)[chains][4], X &&x) const {
#pragma unroll
    for (int i = 0; i < pieces; i++) {
      const uint4 b = x(i);
      const unsigned low[4] = {w[i][0].x, w[i][0].y, w[i][0].z, w[i][0].w};
      const unsigned high[4] = {w[i][1].x, w[i][1].y, w[i][1].z, w[i][1].w};
      mma16816(sum[2 * i % chains], low, b.x, b.y);
      mma16816(sum[(2 * i + 1) % chains], high, b.z, b.w);
    }
  }
  /// The products of the lane's rows with x, in all lanes t.
  template <typename X> __device__ __forceinline__ float2 multiply(X &&x) const {
    if constexpr (halves) {
      float sum[chains][4] = {};
      mma(sum, x);
      float2 total = {sum[0][0], sum[0][2]};
#pragma unroll
      for (int c = 1; c < chains; c++) {
        total.x += sum[c][0];
        total.y += sum[c][2];
      }
      return total;
    } else {
      float sum[2][2] = {};
#pragma unroll
      for (int i = 0; i < pieces; i++) {
        const uint4 b = x(i);
#pragma unroll
        for (int j = 0; j < 2; j++) {
          float &s = sum[j][i % 2];
          s = fmaf(__uint_as_float(w[i][j].x), __uint_as_float(b.x), s);
          s = fmaf(__uint_as_float(w[i][j].y), __uint_as_float(b.y), s);
          s = fmaf(__uint_as_float(w[i][j].z), __uint_as_float(b.z), s);
          s = fmaf(__uint_as_float(w[i][j].w), __uint_as_float(b.w), s);
        }
      }
      return {warpReduce<Sum, 4>(sum[0][0] + sum[0][1]), warpReduce<Sum, 4>(sum[1][0] + sum[1][1])};
    }
  }
  /// The product of one row of 2 K elements, whose halves are here instead of two rows, with x.
  __device__ __forceinline__ float multiplyRow(const T *x, int g, int t) const {
    const uint4 *const from = reinterpret_cast<const uint4 *>(x) + t;
    if constexpr (halves) {
      // Columns of the other operand are either half of x in turn: of the results those count
      // whose row and column agree.
      float sum[chains][4] = {}, total = 0.0f;
      const uint4 *const half = from + g % 2 * (K / vector);
      mma(sum, [&](int i) { return half[i * 4]; });
#pragma unroll
      for (int c = 0; c < chains; c++)
        total += sum[c][0] + sum[c][3];
      return total;
    } else {
      float sum[4] = {};
#pragma unroll
      for (int j = 0; j < 2; j++)
#pragma unroll
        for (int i = 0; i < pieces; i++) {
          const uint4 b = from[j * (K / vector) + i * 4];
          float &s = sum[2 * j + i % 2];
          s = fmaf(__uint_as_float(w[i][j].x), __uint_as_float(b.x), s);
          s = fmaf(__uint_as_float(w[i][j].y), __uint_as_float(b.y), s);
          s = fmaf(__uint_as_float(w[i][j].z), __uint_as_float(b.z), s);
          s = fmaf(__uint_as_float(w[i][j].w), __uint_as_float(b.w), s);
        }
      return warpReduce<Sum, 4>((sum[0] + sum[1]) + (sum[2] + sum[3]));
    }
  }
};

#endif
} // namespace gpt2c::clusters

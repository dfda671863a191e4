// Layer or RMS norm taken out of a product. With a norm that has neither gain nor shift,
//   norm(x) W^T = (x W^T - mean c) / deviation,   c[n] = sum_k W[n,k];
// of an RMS norm the mean counts as 0, and the deviation is the root of the mean square.
// What a row's statistics need is written by the kernel that computes x: for each part of Width
// neighbouring columns, f32x2[parts,M], the mean and the sum of squares of what differs from it.
// Parts of equal width are joined as in Chan, Golub, LeVeque (1983), so that rows far from zero
// keep their digits.
#pragma once

#include "templates/device/common.cuh"

namespace gpt2c {

/// The statistics of a part of a row from `v`, the values that one of some neighbouring lanes, a
/// quad or more, has of it.
template <int Width, int V, int Lanes = 4>
__device__ __forceinline__ float2 partStatistics(const float (&v)[V]) {
  float sum = 0.0f, square = 0.0f;
#pragma unroll
  for (int i = 0; i < V; i++)
    sum += v[i];
  const float mean = warpReduce<Sum, Lanes>(sum) * (1.0f / Width);
#pragma unroll
  for (int i = 0; i < V; i++)
    square += (v[i] - mean) * (v[i] - mean);
  return {mean, warpReduce<Sum, Lanes>(square)};
}

/// What a product does with the norm of its rows: nothing.
struct NoNorm {
  static constexpr bool ofRows = false; // whether rows have a share in it
  static constexpr int columnOperands = 0;
  struct Parts {};
  struct Row {};
  template <int Width>
  __device__ __forceinline__ void stageColumns(float (*)[Width], int, int, int, int) {}
  __device__ __forceinline__ Parts load(int, int) const { return {}; }
  __device__ __forceinline__ Row row(const Parts &) const { return {}; }
  template <int V> __device__ __forceinline__ void apply(float (&)[V], const Row &, i64) const {}
};

/// Folds it into the epilogue.
template <int Count, int Width, bool Rms = false> struct FoldedNorm {
  const float2 *statistics;
  const float *columnSums; // c[n]; Rms: null
  float epsilon;

  static constexpr bool ofRows = true;
  static constexpr int columnOperands = Rms ? 0 : 1;
  /// Copies what belongs to columns to shared memory, ahead of its use.
  template <int Columns>
  __device__ __forceinline__ void stageColumns(float (*shared)[Columns], int col0, int n,
                                               int thread, int threads) {
    if constexpr (!Rms)
      columnSums = gpt2c::stageColumns(columnSums, shared[0], col0, n, thread, threads);
  }

  static constexpr int perLane = ceilDiv(Count, 4);
  /// The parts of a row that a lane of a quad has.
  struct Parts {
    float2 part[perLane];
  };
  __device__ __forceinline__ Parts load(int row, int m) const {
    Parts p;
#pragma unroll
    for (int i = 0; i < perLane; i++)
      p.part[i] = __ldcg(statistics + (i64)min(i * 4 + (int)threadIdx.x % 4, Count - 1) * m +
                         min(row, m - 1));
    return p;
  }
  struct Row {
    float scale, shift; // 1 / deviation, -mean / deviation
  };
  /// By a quad together.
  __device__ __forceinline__ Row row(const Parts &p) const {
    const int lane = threadIdx.x % 4;
    float sum = 0.0f, square = 0.0f;
#pragma unroll
    for (int i = 0; i < perLane; i++)
      sum += i * 4 + lane < Count ? p.part[i].x : 0.0f;
    const float mean = Rms ? 0.0f : warpReduce<Sum, 4>(sum) * (1.0f / Count);
#pragma unroll
    for (int i = 0; i < perLane; i++) {
      const float d = p.part[i].x - mean;
      square += i * 4 + lane < Count ? fmaf(d * d, (float)Width, p.part[i].y) : 0.0f;
    }
    const float scale = rsqrtf(warpReduce<Sum, 4>(square) * (1.0f / (Count * Width)) + epsilon);
    return {scale, -mean * scale};
  }
  /// v: neighbouring sums of a row, the first of column `col`.
  template <int V>
  __device__ __forceinline__ void apply(float (&v)[V], const Row &row, i64 col) const {
    float c[V] = {};
    if constexpr (!Rms)
      loadFloats<V>(columnSums + col, c);
#pragma unroll
    for (int i = 0; i < V; i++)
      v[i] = Rms ? v[i] * row.scale : fmaf(v[i], row.scale, row.shift * c[i]);
  }
};

/// What becomes of the statistics of a product's result: nothing.
struct NoStatistics {
  template <int Width, int Tiles>
  __device__ __forceinline__ void store(const float (&)[Tiles][4], int, int, int, int) const {}
};

/// They are written for the product that norms it.
struct RowStatistics {
  float2 *to;

  /// acc: results of a part that begins at column `col`, of which a lane has [.][2 h] and
  /// [.][2 h + 1] of row `row`.
  template <int Width, int Tiles>
  static __device__ __forceinline__ float2 part(const float (&acc)[Tiles][4], int h) {
    float v[2 * Tiles];
#pragma unroll
    for (int j = 0; j < Tiles; j++) {
      v[2 * j] = acc[j][h * 2];
      v[2 * j + 1] = acc[j][h * 2 + 1];
    }
    return partStatistics<Width>(v);
  }
  template <int Width, int Tiles>
  __device__ __forceinline__ void store(const float (&acc)[Tiles][4], int h, int row, int col,
                                        int m) const {
    const float2 s = part<Width>(acc, h);
    if (threadIdx.x % 4 == 0 && row < m)
      to[(i64)(col / Width) * m + row] = s;
  }
};

} // namespace gpt2c

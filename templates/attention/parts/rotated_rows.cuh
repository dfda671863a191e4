// Rotary embedding on the way to shared memory: the rows of a query and of new keys, turned as the
// op rope turns them, normed before where it does so, and rounded as it stores them, so that
// attention is that of what it gives.
//
// Config: RopePairs (pairs of a head that turn), RopeInterleaved (neighbours are pairs, else the
// halves of the first 2 RopePairs elements), Table (of cosines and sines [places,RopePairs]),
// HeadNorm.
#pragma once

#include "templates/device/turn_pair.cuh"

namespace gpt2c {

/// At most Rows rows of C::HeadDim elements, by a block of Threads threads. A position behind the
/// tables is the last one.
template <typename C, int Rows, int Threads> struct RotatedRows {
  static constexpr int D = C::HeadDim, pairs = C::RopePairs;
  static constexpr int each = D - pairs; // a thread turns a pair, or copies an element that stays
  static constexpr int items = ceilDiv(Rows * each, Threads);
  static_assert(pairs > 0 && 2 * pairs <= D);

  float cosine[items], sine[items];

  /// What divides each of the rows by its root mean square; a barrier of the block has to follow.
  template <typename FromOf>
  static __device__ __forceinline__ void factors(float (&factor)[Rows], int rows, float epsilon,
                                                 FromOf &&fromOf) {
    for (int row = threadIdx.x / 32; row < rows; row += Threads / 32) {
      float squares = 0.0f;
      for (int d = threadIdx.x % 32; d < D; d += 32) {
        const float v = toFloat(fromOf(row)[d]);
        squares = fmaf(v, v, squares);
      }
      squares = warpReduce<Sum>(squares);
      if (threadIdx.x % 32 == 0)
        factor[row] = rsqrtf(squares / D + epsilon);
    }
  }
  /// Of the tables, which are weights; positionOf(row).
  template <typename Table, typename PositionOf>
  __device__ __forceinline__ void loadAngles(const Table *cosines, const Table *sines, int places,
                                             PositionOf &&positionOf) {
#pragma unroll
    for (int i = 0; i < items; i++) {
      const int id = i * Threads + threadIdx.x, row = minInt(id / each, Rows - 1);
      const i64 at =
          (i64)minInt(positionOf(row), places - 1) * pairs + minInt(id % each, pairs - 1);
      cosine[i] = toFloat(cosines[at]);
      sine[i] = toFloat(sines[at]);
    }
  }
  /// Row r of `rows` from fromOf(r) to to[r], with HeadNorm times scaleOf(r, d); a barrier of the
  /// block has to follow.
  template <typename X, int Stride, typename FromOf, typename ScaleOf>
  __device__ __forceinline__ void rotate(X (*to)[Stride], int rows, FromOf &&fromOf,
                                         ScaleOf &&scaleOf) const {
    X first[items], second[items];
#pragma unroll
    for (int i = 0; i < items; i++) {
      const int id = i * Threads + threadIdx.x, row = minInt(id / each, rows - 1), k = id % each;
      const X *from = fromOf(row);
      first[i] = from[firstOf(k)];
      second[i] = from[secondOf(k)];
    }
#pragma unroll
    for (int i = 0; i < items; i++) {
      const int id = i * Threads + threadIdx.x, row = id / each, k = id % each;
      if (row >= rows)
        continue;
      float a = toFloat(first[i]), b = toFloat(second[i]);
      if constexpr (C::HeadNorm) {
        a *= scaleOf(row, firstOf(k));
        b *= scaleOf(row, secondOf(k));
      }
      if (k >= pairs) {
        to[row][pairs + k] = fromFloat<X>(b);
        continue;
      }
      turnPair(a, b, cosine[i], sine[i]);
      to[row][firstOf(k)] = fromFloat<X>(a);
      to[row][secondOf(k)] = fromFloat<X>(b);
    }
  }

private:
  static __device__ __forceinline__ int firstOf(int k) {
    return C::RopeInterleaved && k < pairs ? 2 * k : k;
  }
  static __device__ __forceinline__ int secondOf(int k) {
    return C::RopeInterleaved && k < pairs ? 2 * k + 1 : pairs + k;
  }
};

} // namespace gpt2c

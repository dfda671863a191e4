// Loops over n-d positions with a stride for every tensor and axis: broadcasting (stride 0),
// transposition, slices and concatenation are all a matter of strides.
#pragma once

#include "templates/device/elements.cuh"

namespace gpt2c {

/// One position of a loop: element offsets into the tensors, and the coordinates.
template <int Rank, int Tensors> struct Place {
  i64 offset[Tensors];
  i64 coordinate[Rank > 0 ? Rank : 1];
};

/// Axes from outermost to innermost. Index is an unsigned type that holds the number of positions.
template <int Rank, int Tensors, typename Index> struct Axes {
  static constexpr int rank = Rank;
  i64 size[Rank > 0 ? Rank : 1];
  i64 stride[Tensors][Rank > 0 ? Rank : 1];

  /// Position `i` in row-major order.
  __device__ __forceinline__ Place<Rank, Tensors> at(i64 i) const {
    Place<Rank, Tensors> place = {};
    Index rest = (Index)i;
#pragma unroll
    for (int r = Rank - 1; r >= 0; r--) {
      Index c = rest;
      if (r > 0) {
        Index n = (Index)size[r], above = rest / n;
        c = rest - above * n;
        rest = above;
      }
      place.coordinate[r] = c;
#pragma unroll
      for (int t = 0; t < Tensors; t++)
        place.offset[t] += (i64)c * stride[t][r];
    }
    return place;
  }
};

/// Folds one value of each of Threads threads (a power of two) in a fixed order; every thread gets
/// the result. `shared` holds Threads values and may be used again at once.
template <int Threads, typename T, typename F>
__device__ __forceinline__ T blockFold(T v, T *shared, const F &combine) {
  __syncthreads();
  shared[threadIdx.x] = v;
  __syncthreads();
#pragma unroll
  for (int n = Threads / 2; n > 0; n /= 2) {
    if (threadIdx.x < n)
      shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + n]);
    __syncthreads();
  }
  return shared[0];
}

} // namespace gpt2c

// The end of a sum over ranks: bias, residual, statistics of rows for the norm behind.
#pragma once

#include "templates/linear/parts/row_statistics.cuh"

namespace gpt2c::tile {

/// What is added to the sums, and where they go.
template <typename C> struct SumsEnd {
  const typename C::B *bias;
  const typename C::R *residual;
  typename C::Y *y;
  float2 *statistics;
  i64 rows;

  /// Of V neighbouring columns of a row, by whole warps, of which some lanes may not be inside.
  template <int V>
  __device__ __forceinline__ void store(i64 i, float (&sum)[V], bool inside = true) const {
    const i64 column = i % C::N;
    if (inside) {
      if constexpr (C::Bias)
        add(bias + column, sum);
      if constexpr (C::Residual)
        add(residual + i, sum);
      storeFloats<V>(y + i, sum);
    }
    if constexpr (C::Statistics) {
      constexpr int lanes = 32 / V;
      const float2 part = partStatistics<32, V, lanes>(sum);
      if (inside && threadIdx.x % lanes == 0)
        statistics[column / 32 * rows + i / C::N] = part;
    }
  }

private:
  template <int V, typename T>
  static __device__ __forceinline__ void add(const T *p, float (&sum)[V]) {
    float a[V];
    loadFloats<V>(p, a);
#pragma unroll
    for (int v = 0; v < V; v++)
      sum[v] += a[v];
  }
};

} // namespace gpt2c::tile

// What epilogues share that ranks have a part in: what is done to sums is another's matter.
#pragma once

#include "templates/linear/parts/epilogue.cuh"

namespace gpt2c::epilogue {

template <typename Before> struct PassedOn {
  static constexpr int columnOperands = Before::columnOperands;
  Before before;

  template <int V> using Operands = typename Before::template Operands<V>;
  template <int V> __device__ __forceinline__ Operands<V> load(i64 row, i64 col) const {
    return before.template load<V>(row, col);
  }
  template <int V>
  __device__ __forceinline__ void apply(float (&v)[V], const Operands<V> &o) const {
    before.apply(v, o);
  }
  template <int V>
  __device__ __forceinline__ void operator()(float (&v)[V], i64 row, i64 col) const {
    before(v, row, col);
  }
  __device__ __forceinline__ void prefetchColumn(i64 col) const { before.prefetchColumn(col); }
  template <int W>
  __device__ __forceinline__ void stageColumns(float (*shared)[W], int col0, int count, int thread,
                                               int threads) {
    before.stageColumns(shared, col0, count, thread, threads);
  }
};

} // namespace gpt2c::epilogue

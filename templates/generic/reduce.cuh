// reduce: y[kept] = finish(fold of combine over the reduced axes of x), one block per result. The
// same template finds the index of the greatest element. Partial folds of the threads, then a tree:
// equal inputs give equal bits.
//
// Config: X, Y (storage types), Threads (a power of two), Fold (below).
// Kernel: x, y, rows (results), count (elements per result), then sizes and strides of the
//   kept axes (of x; results are dense) and of the reduced axes.
// Grid: any, rows is one round; block: Threads.
// Bytes: rows count sizeof(X) + rows sizeof(Y); flops: rows count.
#pragma once

#include "templates/device/elementwise.cuh"
#include "templates/device/strided.cuh"

namespace gpt2c {

// A fold over T: the state before any element, of one element (`i` counts the reduced elements in
// row-major order), of two states, and the result.
template <typename T> struct SumFold {
  using State = T;
  static __device__ __forceinline__ T empty() { return 0; }
  static __device__ __forceinline__ T of(T v, i64) { return v; }
  static __device__ __forceinline__ T combine(T a, T b) { return elementwise::add(a, b); }
  static __device__ __forceinline__ T finish(T s, i64) { return s; }
};
/// Integers toward zero, 0 for no elements.
template <typename T> struct MeanFold : SumFold<T> {
  static __device__ __forceinline__ T finish(T s, i64 count) {
    if constexpr (isFloating<T>)
      return s / (T)count;
    else
      return count ? (T)((i64)s / count) : (T)0;
  }
};
template <typename T> struct ProductFold {
  using State = T;
  static __device__ __forceinline__ T empty() { return 1; }
  static __device__ __forceinline__ T of(T v, i64) { return v; }
  static __device__ __forceinline__ T combine(T a, T b) { return elementwise::mul(a, b); }
  static __device__ __forceinline__ T finish(T s, i64) { return s; }
};
template <typename T> struct MaxFold {
  using State = T;
  static __device__ __forceinline__ T empty() { return lowest<T>(); }
  static __device__ __forceinline__ T of(T v, i64) { return v; }
  static __device__ __forceinline__ T combine(T a, T b) { return elementwise::max(a, b); }
  static __device__ __forceinline__ T finish(T s, i64) { return s; }
};
template <typename T> struct MinFold {
  using State = T;
  static __device__ __forceinline__ T empty() { return highest<T>(); }
  static __device__ __forceinline__ T of(T v, i64) { return v; }
  static __device__ __forceinline__ T combine(T a, T b) { return elementwise::min(a, b); }
  static __device__ __forceinline__ T finish(T s, i64) { return s; }
};
/// The first index of the greatest element, the last one with `Last`; NaN never wins, a row of
/// nothing but NaN gives 0.
template <typename T, typename Index, bool Last> struct ArgMaxFold {
  struct State {
    T value;
    i64 index; // -1: none yet
  };
  static __device__ __forceinline__ State empty() { return {(T)0, -1}; }
  static __device__ __forceinline__ State of(T v, i64 i) { return {v, v == v ? i : -1}; }
  static __device__ __forceinline__ State combine(State a, State b) {
    if (a.index < 0 || b.index < 0)
      return a.index < 0 ? b : a;
    if (a.value != b.value)
      return a.value > b.value ? a : b;
    return (a.index < b.index) != Last ? a : b;
  }
  static __device__ __forceinline__ Index finish(State s, i64) {
    return (Index)(s.index < 0 ? 0 : s.index);
  }
};

namespace tile {

template <typename C, typename Kept, typename Reduced>
__device__ __forceinline__ void reduce(const typename C::X *x, typename C::Y *y, i64 rows,
                                       i64 count, const Kept &kept, const Reduced &reduced,
                                       i64 block, i64 blocks) {
  using Fold = typename C::Fold;
  using State = typename Fold::State;
  __shared__ State shared[C::Threads];
  waitForPredecessor();
  for (i64 row = block; row < rows; row += blocks) {
    const typename C::X *p = x + kept.at(row).offset[0];
    State state = Fold::empty();
    for (i64 i = threadIdx.x; i < count; i += C::Threads)
      state = Fold::combine(state, Fold::of(load(p + reduced.at(i).offset[0]), i));
    state =
        blockFold<C::Threads>(state, shared, [](State a, State b) { return Fold::combine(a, b); });
    if (threadIdx.x == 0)
      store(y + row, Fold::finish(state, count));
  }
}

} // namespace tile
} // namespace gpt2c

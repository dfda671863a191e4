// Ops on lines: softmax, layer_norm, rms_norm and cumsum along axes that need not be the last.
//
// A line l of a tensor whose axes are outer, `size`, inner starts at l / inner * size * inner +
// l % inner and its elements are inner apart.
//
// Config of all: X (storage of x and y), Threads (a power of two).
// Grid: any, lines (for cumsum lines / warps) is one round; block: Threads.
// Bytes: two or three times the tensor; flops: 5 (softmax), 8 (norms), 1 (cumsum) per element.
#pragma once

#include "templates/device/elementwise.cuh"
#include "templates/device/strided.cuh"

namespace gpt2c::tile {

// softmax: y = e^(x - max) / sum of e^(x - max) along each line; a line of -infinity gives NaN.
// Kernel: x, y, lines, size, inner.
template <typename C>
__device__ __forceinline__ void softmax(const typename C::X *x, typename C::X *y, i64 lines,
                                        i64 size, i64 inner, i64 block, i64 blocks) {
  using T = Compute<typename C::X>;
  __shared__ T shared[C::Threads];
  waitForPredecessor();
  for (i64 line = block; line < lines; line += blocks) {
    const i64 base = line / inner * size * inner + line % inner;
    T top = lowest<T>(), sum = 0;
    for (i64 i = threadIdx.x; i < size; i += C::Threads) {
      T v = load(x + base + i * inner);
      top = v > top ? v : top;
    }
    top = blockFold<C::Threads>(top, shared, [](T a, T b) { return a > b ? a : b; });
    for (i64 i = threadIdx.x; i < size; i += C::Threads)
      sum += ::exp(load(x + base + i * inner) - top);
    sum = blockFold<C::Threads>(sum, shared, [](T a, T b) { return a + b; });
    for (i64 i = threadIdx.x; i < size; i += C::Threads)
      store(y + base + i * inner, ::exp(load(x + base + i * inner) - top) / sum);
  }
}

// norm: y = (x - mean) / sqrt(variance + epsilon) * scale + bias over rows of `size` neighbouring
// elements; with Rms y = x / sqrt(mean of x^2 + epsilon) * scale. scale and bias are broadcast to
// the normalised axes by their strides.
// Config: Y, Scale, Bias (storage), Rms, HasBias. Kernel: x, scale, bias (where there is one), y,
// rows, size, epsilon, then the normalised axes with strides of scale and bias.
template <typename C, typename Normalised>
__device__ __forceinline__ void norm(const typename C::X *x, const typename C::Scale *scale,
                                     const typename C::Bias *bias, typename C::Y *y, i64 rows,
                                     i64 size, float epsilon, const Normalised &axes, i64 block,
                                     i64 blocks) {
  using T = Compute<typename C::X>;
  __shared__ T shared[C::Threads];
  auto plus = [](T a, T b) { return a + b; };
  waitForPredecessor();
  for (i64 row = block; row < rows; row += blocks) {
    const typename C::X *from = x + row * size;
    T mean = 0, squares = 0;
    if constexpr (!C::Rms) {
      for (i64 i = threadIdx.x; i < size; i += C::Threads)
        mean += load(from + i);
      mean = blockFold<C::Threads>(mean, shared, plus) / (T)size;
    }
    for (i64 i = threadIdx.x; i < size; i += C::Threads) {
      T d = load(from + i) - mean;
      squares += d * d;
    }
    squares = blockFold<C::Threads>(squares, shared, plus);
    const T factor = (T)1 / ::sqrt(squares / (T)size + (T)epsilon);
    for (i64 i = threadIdx.x; i < size; i += C::Threads) {
      const auto place = axes.at(i);
      T v = (load(from + i) - mean) * factor * (T)load(scale + place.offset[0]);
      if constexpr (C::HasBias)
        v += (T)load(bias + place.offset[1]);
      store(y + row * size + i, v);
    }
  }
}

// cumsum: y[i] = x[0] + ... + x[i] along each line, one warp per line, 32 elements at a time.
// Config: Exclusive (without x[i]), Reverse (from the end). Kernel: x, y, lines, size, inner.
template <typename C>
__device__ __forceinline__ void cumsum(const typename C::X *x, typename C::X *y, i64 lines,
                                       i64 size, i64 inner, i64 block, i64 blocks) {
  using T = Compute<typename C::X>;
  constexpr int warps = C::Threads / 32;
  const int lane = threadIdx.x % 32;
  waitForPredecessor();
  for (i64 line = block * warps + threadIdx.x / 32; line < lines; line += blocks * warps) {
    const i64 base = line / inner * size * inner + line % inner;
    T carry = 0;
    for (i64 first = 0; first < size; first += 32) {
      const i64 i = first + lane, at = base + (C::Reverse ? size - 1 - i : i) * inner;
      T sum = i < size ? (T)load(x + at) : (T)0;
#pragma unroll
      for (int d = 1; d < 32; d *= 2) {
        T below = __shfl_up_sync(fullWarp, sum, d);
        if (lane >= d)
          sum = elementwise::add(sum, below);
      }
      T before = __shfl_up_sync(fullWarp, sum, 1);
      T result = elementwise::add(carry, C::Exclusive ? (lane ? before : (T)0) : sum);
      if (i < size)
        store(y + at, result);
      carry = elementwise::add(carry, (T)__shfl_sync(fullWarp, sum, 31));
    }
  }
}

} // namespace gpt2c::tile

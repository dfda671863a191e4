// masked_softmax: each row of scores becomes probabilities in one pass
//   y = softmax(scale * x + bias) over the visible keys, 0 for the others
// with rows x[batch, heads, queries, keys]. A row lives in the registers of its threads, so that x
// is read once; rows too long for that are read twice, the first time with an online softmax. Keys
// that the row's query may not see (Causal) are not read.
//
// Config: X (x, y, bias), M (mask): storage; Index (unsigned, holds the number of rows); Threads;
//   Lanes (of a row: 32, or Threads); Elements (of a thread, at once: a multiple of 16 bytes);
//   Rows (that the threads of a row compute one after the other, each fetched while the one before
//   is computed); Width (neighbours in an access:
//   16 bytes, 1, or 0 where it depends on `keys`); Long (a row is more than Lanes * Elements);
//   Causal (query q sees keys j <= keys - queries + q); Mask; Bias; Plain (a row of -infinity is
//   NaN, as for softmax without a mask, not zeros).
// Kernel: x, mask M[batch, keys] (0 hides), bias with strides biasBatch, biasHead, biasRow, biasKey
//   (biasKey 0 or 1), y, rows = batch * heads * queries, heads, queries, keys, scale.
// Grid: any, rows / (Threads / Lanes * Rows) is one round; block: Threads.
// Bytes: visible scores and all of y; flops: 5 an element.
#pragma once

#include "templates/device/elements.cuh"

namespace gpt2c {

/// e^v by way of a power of two.
__device__ __forceinline__ float power(float v) { return exp2f(v * 1.44269504f); }
__device__ __forceinline__ double power(double v) { return ::exp(v); }

/// 16 bytes that are read once, zeros without an access where `wanted` is false.
template <int V, typename T>
__device__ __forceinline__ Pack<T, V> loadPackWhere(const T *p, bool wanted) {
  static_assert(V * sizeof(T) == 16);
  uint4 r;
  asm volatile("{\n\t.reg .pred wanted;\n\tsetp.ne.u32 wanted, %5, 0;\n\t"
               "mov.u32 %0, 0;\n\tmov.u32 %1, 0;\n\tmov.u32 %2, 0;\n\tmov.u32 %3, 0;\n\t"
               "@wanted ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n\t}"
               : "=&r"(r.x), "=&r"(r.y), "=&r"(r.z), "=&r"(r.w)
               : "l"(p), "r"((unsigned)wanted)
               : "memory");
  return {r};
}

namespace tile {

/// The threads of one row, with accesses of V neighbours: access c of a thread begins at key
/// base + (c * Lanes + lane) * V.
template <typename C, int V, int Elements> struct MaskedRow {
  using X = typename C::X;
  using T = Compute<X>;
  static constexpr int accesses = Elements / V, words = ceilDiv(Elements, 32);
  using Loaded = Pack<X, V>[accesses];

  const int lane = threadIdx.x % C::Lanes;
  unsigned visible[words]; // a bit for each element: its key's mask

  __device__ __forceinline__ int keyOf(int base, int access) const {
    return base + (access * C::Lanes + lane) * V;
  }

  __device__ __forceinline__ void loadMask(const typename C::M *mask, int base, int keys) {
    using M = typename C::M;
    constexpr int width = minInt(V, 16 / (int)sizeof(M));
#pragma unroll
    for (int w = 0; w < words; w++)
      visible[w] = 0;
#pragma unroll
    for (int c = 0; c < accesses; c++) {
      const int key = keyOf(base, c);
      if (key >= keys)
        continue;
#pragma unroll
      for (int i = 0; i < V; i += width) {
        const Pack<M, width> pack = loadPack<width>(mask + key + i);
#pragma unroll
        for (int k = 0; k < width; k++) {
          const M m = pack.at(k);
          const int bit = c * V + i + k;
          if (load(&m) != 0)
            visible[bit / 32] |= 1u << bit % 32;
        }
      }
    }
  }

  __device__ __forceinline__ void fetch(const X *x, int base, int limit, Loaded &loaded) const {
#pragma unroll
    for (int c = 0; c < accesses; c++) {
      const int key = keyOf(base, c);
      if constexpr (V > 1)
        loaded[c] = loadPackWhere<V>(x + key, key < limit);
      else if (key < limit)
        loaded[c].set(0, x[key]);
    }
  }

  /// Scores of the keys from `base` on, -infinity for those that are not seen.
  __device__ __forceinline__ void scores(const Loaded &loaded, const X *bias, i64 biasKey, int base,
                                         int limit, T scale, T (&v)[Elements]) const {
#pragma unroll
    for (int c = 0; c < accesses; c++) {
      const int key = keyOf(base, c);
      Pack<X, V> added;
      if constexpr (C::Bias)
        if (biasKey && key < limit)
          added = loadPack<V>(bias + key);
#pragma unroll
      for (int i = 0; i < V; i++) {
        const X raw = loaded[c].at(i);
        T s = load(&raw) * scale;
        if constexpr (C::Bias) {
          const X b = biasKey ? added.at(i) : bias[0];
          s += load(&b);
        }
        const int element = c * V + i;
        bool sees = key + i < limit;
        if constexpr (C::Mask)
          sees = sees && (visible[element / 32] >> element % 32 & 1);
        v[element] = sees ? s : lowest<T>();
      }
    }
  }

  /// v = e^(v - top); returns the sum.
  __device__ __forceinline__ T exponentials(T top, T (&v)[Elements]) const {
    T total = 0;
#pragma unroll
    for (int i = 0; i < Elements; i++)
      total += v[i] = power(v[i] - top);
    return total;
  }

  __device__ __forceinline__ void write(X *y, int base, int keys, T inverse,
                                        const T (&v)[Elements]) const {
#pragma unroll
    for (int c = 0; c < accesses; c++) {
      const int key = keyOf(base, c);
      Pack<X, V> pack;
#pragma unroll
      for (int i = 0; i < V; i++) {
        const T e = v[c * V + i];
        X p;
        store(&p, e == 0 && !C::Plain ? (T)0 : e * inverse);
        pack.set(i, p);
      }
      if (key < keys)
        storePack<V>(y + key, pack);
    }
  }

  /// Folds one value of each of the row's threads in a fixed order.
  template <typename F> __device__ __forceinline__ T fold(T v, T *scratch, const F &combine) const {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
      v = combine(v, __shfl_xor_sync(fullWarp, v, offset));
    if constexpr (C::Lanes > 32) {
      __syncthreads();
      if (threadIdx.x % 32 == 0)
        scratch[threadIdx.x / 32] = v;
      __syncthreads();
      v = scratch[0];
#pragma unroll
      for (int i = 1; i < C::Lanes / 32; i++)
        v = combine(v, scratch[i]);
    }
    return v;
  }
};

/// Of x and y, whose rows are those of batches, heads and queries.
struct SoftmaxShape {
  i64 rows, heads, queries, keys;
};
/// Elements from one batch, head, query and key of the bias to the next.
struct BiasStrides {
  i64 batch, head, row, key;
};
/// The block and how many there are.
struct BlockOf {
  i64 block, blocks;
};

template <typename C, int V, int Elements>
__device__ __forceinline__ void maskedSoftmaxRows(const typename C::X *x, const typename C::M *mask,
                                                  const typename C::X *bias, typename C::X *y,
                                                  SoftmaxShape shape, BiasStrides strides,
                                                  float scale, BlockOf place) {
  const i64 rows = shape.rows, heads = shape.heads, queries = shape.queries, block = place.block,
            blocks = place.blocks;
  const int keys = (int)shape.keys;
  using Row = MaskedRow<C, V, Elements>;
  using T = typename Row::T;
  using Index = typename C::Index;
  constexpr int groups = C::Threads / C::Lanes, span = C::Lanes * Elements;
  __shared__ T scratch[maxInt(1, C::Lanes / 32)];
  const auto most = [](T a, T b) { return b > a ? b : a; };
  const auto sum = [](T a, T b) { return a + b; };
  /// How many keys the query of a row may see.
  const auto limitOf = [&](i64 at) {
    if constexpr (!C::Causal)
      return keys;
    const int q = (int)((Index)at % (Index)queries);
    return minInt(keys, maxInt(0, (int)(keys - queries) + q + 1));
  };
  Row row;
  typename Row::Loaded loaded, next;
  i64 masked = -1; // the sequence whose mask the row's threads hold
  for (i64 round = block; round * groups * C::Rows < rows; round += blocks) {
    const i64 first = round * groups * C::Rows + threadIdx.x / C::Lanes;
    if (first >= rows)
      return;
    if constexpr (!C::Long)
      row.fetch(x + first * keys, 0, limitOf(first), next);
#pragma unroll 1
    for (int r = 0; r < C::Rows; r++) {
      const i64 at = first + r * groups;
      if (at >= rows)
        return;
      if constexpr (!C::Long) {
        // The next row is on its way while this one is computed.
#pragma unroll
        for (int c = 0; c < Row::accesses; c++)
          loaded[c] = next[c];
        if (r + 1 < C::Rows && at + groups < rows)
          row.fetch(x + (at + groups) * keys, 0, limitOf(at + groups), next);
      }
      const int limit = limitOf(at);
      i64 b = 0;
      const typename C::X *added = nullptr;
      if constexpr (C::Mask || C::Bias) {
        const Index above = (Index)at / (Index)queries, q = (Index)at - above * (Index)queries;
        b = above / (Index)heads;
        if constexpr (C::Bias)
          added = bias + b * strides.batch + (above - (Index)b * (Index)heads) * strides.head +
                  q * strides.row;
      }
      const auto scores = [&](int base, T(&v)[Elements]) {
        if constexpr (C::Long)
          row.fetch(x + at * keys, base, limit, loaded);
        if constexpr (C::Mask)
          if (C::Long || masked != b) {
            row.loadMask(mask + b * keys, base, keys);
            masked = b;
          }
        row.scores(loaded, added, strides.key, base, limit, (T)scale, v);
      };

      T v[Elements], top = lowest<T>(), total = 0;
      for (int base = 0; base < (C::Long ? limit : 1); base += span) {
        scores(base, v);
        T best = top;
#pragma unroll
        for (int i = 0; i < Elements; i++)
          best = most(best, v[i]);
        if constexpr (C::Long) {
          // Each thread keeps its own maximum until the row has been read.
          const T from = best == lowest<T>() ? (T)0 : best;
          total *= power(top - from);
          total += row.exponentials(from, v);
        }
        top = best;
      }
      const T own = top;
      top = row.fold(top, scratch, most);
      if (top == lowest<T>() && !C::Plain)
        top = 0; // every key is hidden
      if constexpr (C::Long)
        total = total == 0 ? (T)0 : total * power(own - top);
      else
        total = row.exponentials(top, v);
      total = row.fold(total, scratch, sum);
      const T inverse = (T)1 / total;
      for (int base = 0; base < (C::Long ? keys : 1); base += span) {
        if constexpr (C::Long) {
          scores(base, v);
          row.exponentials(top, v);
        }
        row.write(y + at * keys, base, keys, inverse, v);
      }
    }
  }
}

template <typename C>
__device__ __forceinline__ void maskedSoftmax(const typename C::X *x, const typename C::M *mask,
                                              const typename C::X *bias, typename C::X *y,
                                              SoftmaxShape shape, BiasStrides strides, float scale,
                                              BlockOf place) {
  const i64 keys = shape.keys;
  constexpr int wide = elementsPer16Bytes<typename C::X>();
  waitForPredecessor();
  releaseSuccessor();
  const auto run = [&](auto width, auto elements) {
    maskedSoftmaxRows<C, decltype(width)::value, decltype(elements)::value>(x, mask, bias, y, shape,
                                                                            strides, scale, place);
  };
  using All = IntConstant<C::Elements>;
  // Rows of half the length, where that depends on `keys`, leave no registers empty.
  constexpr int half = C::Elements / 2;
  if constexpr (C::Width != 0)
    run(IntConstant<C::Width>{}, All{});
  else if (keys % wide != 0)
    run(IntConstant<1>{}, All{});
  else if constexpr (half % wide == 0 && !C::Long) {
    if (keys <= C::Lanes * half)
      run(IntConstant<wide>{}, IntConstant<half>{});
    else
      run(IntConstant<wide>{}, All{});
  } else
    run(IntConstant<wide>{}, All{});
}

} // namespace tile
} // namespace gpt2c

// The products of a linear stage in fp16; see stages/products.cuh.
#pragma once

#include "templates/decode_step/stages/products.cuh"

namespace gpt2c::persistent {
#if __CUDA_ARCH__ >= 900

template <typename C> struct Slice<C, __half> {
  using P = Pieces<C>;
  static constexpr int xRows = C::Rows * C::Splits; ///< of the operand
  static constexpr int tiles = ceilDiv(xRows, 8);
  static_assert(tiles <= 2 && (C::Splits & (C::Splits - 1)) == 0);
  P pieces;
  uint4 x[P::count][tiles] = {};
  uint4 gain[C::Gain ? P::count : 1] = {};

  __device__ __forceinline__ bool mine(int i, int m) const {
    return pieces.g + 8 * m < xRows && pieces.inside(i);
  }
  /// Gains are constants: on their way before x is waited for.
  __device__ __forceinline__ void prepare(const __half *gains) {
    if constexpr (C::Gain)
#pragma unroll
      for (int i = 0; i < P::count; i++)
        gain[i] = exchanged(*reinterpret_cast<const uint4 *>(gains + pieces.k(i)));
  }
  __device__ __forceinline__ void receive(const __half *from, const float *maxima) {
    constexpr int splits = C::Splits, heads = C::K / C::HeadDim;
    // Rows of x: a row for each sequence, or for each part of each head of each sequence.
    auto head = [&](int i, int m) {
      const int r = min(pieces.g + 8 * m, xRows - 1);
      return (r / splits * heads + pieces.k(i) / C::HeadDim) * splits + r % splits;
    };
    auto place = [&](int i, int m) {
      const int r = min(pieces.g + 8 * m, xRows - 1);
      return splits == 1 ? r * C::K + pieces.k(i)
                         : head(i, m) * C::HeadDim + pieces.k(i) % C::HeadDim;
    };
    u64 of[splits > 1 ? P::count : 1][tiles] = {};
    auto load = [&] {
#pragma unroll
      for (int i = 0; i < P::count; i++)
#pragma unroll
        for (int m = 0; m < tiles; m++) {
          loadGroup(x[i][m], from + place(i, m), mine(i, m));
          if constexpr (splits > 1)
            of[i][m] = loadPair(maxima + 2 * head(i, m));
        }
    };
    auto missing = [&] {
      bool some = false;
#pragma unroll
      for (int i = 0; i < P::count; i++)
#pragma unroll
        for (int m = 0; m < tiles; m++) {
          some |= mine(i, m) && !written(x[i][m]);
          if constexpr (splits > 1)
            some |= of[i][m] >> 32 == 0;
        }
      return some;
    };
    persistent::receive(load, missing);
    if constexpr (splits > 1)
#pragma unroll
      for (int i = 0; i < P::count; i++)
#pragma unroll
        for (int m = 0; m < tiles; m++) {
          const float weight = partWeight<splits>(__uint_as_float((unsigned)of[i][m]),
                                                  __uint_as_float((unsigned)(of[i][m] >> 32)));
          scale(x[i][m], __float2half2_rn(weight));
        }
  }
  static __device__ __forceinline__ Moments moments(const Sums<C> &sums, int row, float epsilon) {
    float2 part[warps];
#pragma unroll
    for (int w = 0; w < warps; w++)
      part[w] = *reinterpret_cast<const float2 *>(sums.statistics(w, row));
    const auto [sum, squares] = sumOf(part);
    const float mean = C::Norm == NormKind::Layer ? sum * (1.0f / C::K) : 0.0f;
    const float variance = fmaxf(squares * (1.0f / C::K) - mean * mean, 0.0f);
    return {rsqrtf(variance + epsilon), mean};
  }
  template <bool Statistics>
  __device__ __forceinline__ void multiply(const unsigned (&rows)[P::chunks][C::Tiles],
                                           const Sums<C> &sums) {
    // An instruction waits 33 cycles for the sums of one before it.
    constexpr int chains = C::Tiles == 1 ? 2 : 1;
    float sum[C::Tiles][chains][2][4] = {};
    Squares squares;
#pragma unroll
    for (int i = 0; i < P::count; i++) {
      if constexpr (Statistics) {
        squares.add(x[i], pieces.g == 7);
        if constexpr (C::Gain)
#pragma unroll
          for (int m = 0; m < tiles; m++)
            scale(x[i][m], gain[i]);
      }
      const Fragment low(x[i], 0), high(x[i], 1);
#pragma unroll
      for (int u = 0; u < C::Tiles; u++) {
        const uint4 w = weights(rows[i / P::each][u], pieces.at(i));
        mma16816(sum[u][i % chains][0], low.word, w.x, w.y);
        mma16816(sum[u][i % chains][1], high.word, w.z, w.w);
      }
    }
    if constexpr (Statistics)
      squares.store(sums, pieces);
#pragma unroll
    for (int u = 0; u < C::Tiles; u++)
#pragma unroll
      for (int m = 0; m < tiles; m++) {
        float v[2];
#pragma unroll
        for (int j = 0; j < 2; j++) {
          v[j] = wanted(sum[u][0], m, j);
#pragma unroll
          for (int c = 1; c < chains; c++)
            v[j] += wanted(sum[u][c], m, j);
#pragma unroll
          for (int step = 4; step < 4 * C::Splits; step *= 2)
            v[j] += __shfl_xor_sync(fullWarp, v[j], step);
        }
        const int r = pieces.g + 8 * m;
        if (r < xRows && r % C::Splits == 0)
          *reinterpret_cast<float2 *>(sums.row(pieces.warp, r / C::Splits) + u * unitRows +
                                      2 * pieces.t) = float2{v[0], v[1]};
      }
  }

private:
  /// A half of a vector as the first operand of mma16816. With one tile both are a group of a
  /// channel as it was loaded.
  struct Fragment {
    unsigned word[4];
    __device__ __forceinline__ Fragment(const uint4 (&x)[tiles], int half) {
      const uint4 &a = x[0], &b = x[tiles - 1];
      const bool high = tiles > 1 && half == 1;
      word[0] = high ? a.y : a.x;
      word[1] = tiles == 1 ? a.y : high ? b.y : b.x;
      word[2] = high ? a.w : a.z;
      word[3] = tiles == 1 ? a.w : high ? b.w : b.z;
    }
  };
  /// Of the sums of both halves that of row g + 8 m, column 2 t + j.
  static __device__ __forceinline__ float wanted(const float (&sum)[2][4], int m, int j) {
    return sum[0][2 * m + j] + sum[1][tiles == 1 ? 2 + j : 2 * m + j];
  }
  /// Sums and sums of squares of the rows of x, in one pass, whose loss, about 2^-24 mean^2 /
  /// variance, is below that of x itself. A product of x with its own transpose has the squares in
  /// its diagonal. Up to seven rows leave its last column free: it has ones instead of x, and so
  /// the sums.
  struct Squares {
    static constexpr unsigned ones = 0x3c003c00u;
    static constexpr bool together = C::Rows < 8;
    float squares[tiles][2][4] = {}, plain[2][4] = {};

    __device__ __forceinline__ void add(const uint4 (&x)[tiles], bool lastColumn) {
      const Fragment low(x, 0), high(x, 1);
      auto other = [&](unsigned v) { return together && lastColumn ? ones : v; };
#pragma unroll
      for (int m = 0; m < tiles; m++) {
        mma16816(squares[m][0], low.word, other(x[m].x), other(x[m].z));
        mma16816(squares[m][1], high.word, other(x[m].y), other(x[m].w));
      }
      if constexpr (!together) {
        mma16816(plain[0], low.word, ones, ones);
        mma16816(plain[1], high.word, ones, ones);
      }
    }
    __device__ __forceinline__ void store(const Sums<C> &sums, const P &at) const {
#pragma unroll
      for (int m = 0; m < tiles; m++) {
        const int r = at.g + 8 * m;
        const float even = wanted(squares[m], m, 0), odd = wanted(squares[m], m, 1);
        if (r < C::Rows && at.t == at.g / 2)
          sums.statistics(at.warp, r)[1] = at.g % 2 ? odd : even;
        if (r < C::Rows && at.t == 3)
          sums.statistics(at.warp, r)[0] = together ? odd : wanted(plain, m, 1);
      }
    }
  };
  static __device__ __forceinline__ uint4 weights(unsigned row, int vector) {
    if constexpr (Operand<typename C::W>::scaled) {
      unsigned low, high;
      asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                   : "=r"(low), "=r"(high)
                   : "r"(row + vector * 8));
      using Weights = Operand<typename C::W>;
      const HalfPairs a = Weights::halves(low), b = Weights::halves(high);
      return {a.low, a.high, b.low, b.high};
    } else {
      uint4 w;
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
                   : "r"(row + vector * 16));
      return w;
    }
  }
  static __device__ __forceinline__ void scale(uint4 &v, __half2 by) {
    __half2 *pair = reinterpret_cast<__half2 *>(&v);
#pragma unroll
    for (int j = 0; j < 4; j++)
      pair[j] = __hmul2(pair[j], by);
  }
  static __device__ __forceinline__ void scale(uint4 &v, const uint4 &by) {
    __half2 *pair = reinterpret_cast<__half2 *>(&v);
#pragma unroll
    for (int j = 0; j < 4; j++)
      pair[j] = __hmul2(pair[j], reinterpret_cast<const __half2 *>(&by)[j]);
  }
};

#endif
} // namespace gpt2c::persistent

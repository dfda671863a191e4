// The products of a linear stage: a slice of x in registers times rows of weights in the ring.
//
// K is dealt out to the warps in pieces of 64 bytes of x (piece i of warp w is number w + warps i
// of a chunk), so that lane (g, t) = (lane / 4, lane % 4) has vector t of each: 16 bytes of x, and
// the elements at the same k of row g of a unit of weights. The order of k within a product is free
// as long as both operands agree, so for fp16 these vectors are operands of mma.m16n8k16 as they
// are, with row g of x (a sequence, or one part of its attention) against row g of the weights.
// fp32 has one row of x, which all g share, and multiplies in plain instructions.
//
// Config: LinearStageConfig.
#pragma once

#include "templates/device/int8.cuh"
#include "templates/persistent/persistent_block.cuh"

namespace gpt2c::persistent {
#if __CUDA_ARCH__ >= 900

/// Where the vectors of a warp are.
template <typename C> struct Pieces {
  static constexpr int vector = elementsPer16Bytes<typename C::T>();
  static constexpr int vectors = C::Chunk / vector; ///< of a chunk
  static constexpr int each = ceilDiv(ceilDiv(vectors, 4), warps);
  static constexpr int chunks = C::K / C::Chunk;
  static constexpr int count = chunks * each;
  static constexpr bool even = vectors % (4 * warps) == 0;
  static_assert(C::Chunk % vector == 0 && C::K % C::Chunk == 0);

  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  /// Whether piece i has a vector for this lane; if not, at() is that of the last vector.
  __device__ __forceinline__ bool inside(int i) const {
    return even || (warp + i % each * warps) * 4 + t < vectors;
  }
  /// The vector within its chunk.
  __device__ __forceinline__ int at(int i) const {
    const int v = (warp + i % each * warps) * 4 + t;
    return even ? v : min(v, vectors - 1);
  }
  /// Its first element of a row of x.
  __device__ __forceinline__ int k(int i) const { return i / each * C::Chunk + at(i) * vector; }
  /// Elements of x that a warp has.
  static __device__ __forceinline__ float share(int warp) {
    int n = 0;
#pragma unroll
    for (int i = 0; i < each; i++)
      n += max(0, min(4, vectors - (warp + i * warps) * 4));
    return (float)(n * vector * chunks);
  }
};

/// What a warp has of the sums of a stage: products by row and column, and of a normalised x its
/// statistics by row, in shared memory: f32[warps,Rows,columns], then f32[warps,Rows,2].
template <typename C> struct Sums {
  static constexpr int columns = C::Tiles * unitRows;
  static constexpr int bytes = warps * C::Rows * (columns + 2) * 4;
  float *memory;

  __device__ __forceinline__ float *row(int warp, int row) const {
    return memory + (warp * C::Rows + row) * columns;
  }
  __device__ __forceinline__ float *statistics(int warp, int row) const {
    return memory + (warps * columns + warp * 2) * C::Rows + row * 2;
  }
};

/// One over the square root of variance + epsilon, and the mean of row `row`.
struct Moments {
  float scale, mean;
};

/// The sum of the warps' parts, in pairs, which takes fewer steps than one after the other.
__device__ __forceinline__ float2 sumOf(float2 (&part)[warps]) {
#pragma unroll
  for (int step = 1; step < warps; step *= 2)
#pragma unroll
    for (int w = 0; w < warps; w += 2 * step) {
      part[w].x += part[w + step].x;
      part[w].y += part[w + step].y;
    }
  return part[0];
}

/// Weights of the parts of attention: of a part whose maximum is `max` and whose exponentials sum
/// to `sum`, among the Splits parts that lanes 4 apart hold.
template <int Splits> __device__ __forceinline__ float partWeight(float max, float sum) {
  float top = max;
#pragma unroll
  for (int step = 4; step < 4 * Splits; step *= 2)
    top = fmaxf(top, __shfl_xor_sync(fullWarp, top, step));
  const float weight = sum * powerOf2(max - top);
  float total = weight;
#pragma unroll
  for (int step = 4; step < 4 * Splits; step *= 2)
    total += __shfl_xor_sync(fullWarp, total, step);
  return __fdividef(weight, total);
}

/// A slice of x. receive() waits for it; multiply() stores the sums of the products with the units
/// whose rows of weights begin at `rows` in shared memory, [chunks][Tiles], and with Statistics
/// those of x that moments() makes mean and scale of.
template <typename C, typename T> struct Slice;

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
    Patience patience;
    bool missing;
    do {
      missing = false;
#pragma unroll
      for (int i = 0; i < P::count; i++)
#pragma unroll
        for (int m = 0; m < tiles; m++) {
          loadGroup(x[i][m], from + place(i, m), mine(i, m));
          if constexpr (splits > 1)
            of[i][m] = loadPair(maxima + 2 * head(i, m));
        }
#pragma unroll
      for (int i = 0; i < P::count; i++)
#pragma unroll
        for (int m = 0; m < tiles; m++) {
          missing |= mine(i, m) && !written(x[i][m]);
          if constexpr (splits > 1)
            missing |= of[i][m] >> 32 == 0;
        }
      patience.spend();
    } while (__any_sync(fullWarp, missing));
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
      const Operand low(x[i], 0), high(x[i], 1);
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
  struct Operand {
    unsigned word[4];
    __device__ __forceinline__ Operand(const uint4 (&x)[tiles], int half) {
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
      const Operand low(x, 0), high(x, 1);
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
    if constexpr (sizeof(typename C::W) == 1) {
      unsigned low, high;
      asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                   : "=r"(low), "=r"(high)
                   : "r"(row + vector * 8));
      const quantised::HalfPairs a = quantised::halves(low), b = quantised::halves(high);
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

template <typename C> struct Slice<C, float> {
  using P = Pieces<C>;
  static_assert(C::Rows == 1 && C::Splits <= 8 && (C::Splits & (C::Splits - 1)) == 0);
  P pieces;
  float4 x[P::count] = {};
  float4 gain[C::Gain ? P::count : 1];

  __device__ __forceinline__ void prepare(const float *gains) {
    if constexpr (C::Gain)
#pragma unroll
      for (int i = 0; i < P::count; i++)
        gain[i] = *reinterpret_cast<const float4 *>(gains + pieces.k(i));
  }
  __device__ __forceinline__ void receive(const float *from, const float *maxima) {
    constexpr int splits = C::Splits;
    auto head = [&](int i) { return pieces.k(i) / C::HeadDim * splits + pieces.g % splits; };
    auto place = [&](int i) {
      return splits == 1 ? pieces.k(i) : head(i) * C::HeadDim + pieces.k(i) % C::HeadDim;
    };
    uint4 group[P::count] = {};
    u64 of[splits > 1 ? P::count : 1];
    Patience patience;
    bool missing;
    do {
      missing = false;
#pragma unroll
      for (int i = 0; i < P::count; i++) {
        loadGroup(group[i], from + place(i), pieces.inside(i));
        if constexpr (splits > 1)
          of[i] = loadPair(maxima + 2 * head(i));
      }
#pragma unroll
      for (int i = 0; i < P::count; i++) {
        missing |= pieces.inside(i) && !written(group[i]);
        if constexpr (splits > 1)
          missing |= of[i] >> 32 == 0;
      }
      patience.spend();
    } while (__any_sync(fullWarp, missing));
#pragma unroll
    for (int i = 0; i < P::count; i++) {
      x[i] = *reinterpret_cast<const float4 *>(&group[i]);
      if constexpr (splits > 1) {
        const float weight = partWeight<splits>(__uint_as_float((unsigned)of[i]),
                                                __uint_as_float((unsigned)(of[i] >> 32)));
#pragma unroll
        for (int j = 0; j < 4; j++) {
          float &v = element(x[i], j);
          v *= weight;
#pragma unroll
          for (int step = 4; step < 4 * splits; step *= 2)
            v += __shfl_xor_sync(fullWarp, v, step);
        }
      }
    }
  }
  /// Of the warp's part: mean and sum of squared differences; those of all parts make the row's
  /// (Chan, Golub, LeVeque 1979).
  __device__ __forceinline__ void storeStatistics(const Sums<C> &sums) const {
    float sum = 0.0f, squares = 0.0f, mean = 0.0f;
    if constexpr (C::Norm == NormKind::Layer) {
#pragma unroll
      for (int i = 0; i < P::count; i++)
        sum += (x[i].x + x[i].y) + (x[i].z + x[i].w);
      mean = warpReduce<Sum, 4>(sum) / fmaxf(P::share(pieces.warp), 1.0f);
    }
#pragma unroll
    for (int i = 0; i < P::count; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float d = pieces.inside(i) ? element(x[i], j) - mean : 0.0f;
        squares = fmaf(d, d, squares);
      }
    squares = warpReduce<Sum, 4>(squares);
    if (threadIdx.x % 32 == 0)
      *reinterpret_cast<float2 *>(sums.statistics(pieces.warp, 0)) = float2{mean, squares};
  }
  static __device__ __forceinline__ Moments moments(const Sums<C> &sums, int, float epsilon) {
    float2 part[warps];
    float mean = 0.0f, squares = 0.0f;
#pragma unroll
    for (int w = 0; w < warps; w++) {
      part[w] = *reinterpret_cast<const float2 *>(sums.statistics(w, 0));
      mean += part[w].x * (P::share(w) * (1.0f / C::K));
    }
#pragma unroll
    for (int w = 0; w < warps; w++)
      squares += part[w].y + P::share(w) * (part[w].x - mean) * (part[w].x - mean);
    return {rsqrtf(squares * (1.0f / C::K) + epsilon), mean};
  }
  template <bool Statistics>
  __device__ __forceinline__ void multiply(const unsigned (&rows)[P::chunks][C::Tiles],
                                           const Sums<C> &sums) {
    if constexpr (Statistics) {
      storeStatistics(sums);
      if constexpr (C::Gain)
#pragma unroll
        for (int i = 0; i < P::count; i++)
#pragma unroll
          for (int j = 0; j < 4; j++)
            element(x[i], j) *= element(gain[i], j);
    }
    float sum[C::Tiles][2] = {};
#pragma unroll
    for (int i = 0; i < P::count; i++)
#pragma unroll
      for (int u = 0; u < C::Tiles; u++) {
        const float4 w = weights(rows[i / P::each][u], pieces.at(i));
        float &s = sum[u][i % 2];
        s = fmaf(w.x, x[i].x, s);
        s = fmaf(w.y, x[i].y, s);
        s = fmaf(w.z, x[i].z, s);
        s = fmaf(w.w, x[i].w, s);
      }
#pragma unroll
    for (int u = 0; u < C::Tiles; u++) {
      const float all = warpReduce<Sum, 4>(sum[u][0] + sum[u][1]);
      if (pieces.t == 0)
        sums.row(pieces.warp, 0)[u * unitRows + pieces.g] = all;
    }
  }

private:
  static __device__ __forceinline__ float &element(float4 &v, int j) {
    return reinterpret_cast<float *>(&v)[j];
  }
  static __device__ __forceinline__ float element(const float4 &v, int j) {
    return reinterpret_cast<const float *>(&v)[j];
  }
  static __device__ __forceinline__ float4 weights(unsigned row, int vector) {
    float4 w;
    if constexpr (sizeof(typename C::W) == 1) {
      unsigned word;
      asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(row + vector * 4));
      w = {(float)(signed char)word, (float)(signed char)(word >> 8),
           (float)(signed char)(word >> 16), (float)((int)word >> 24)};
    } else {
      asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(w.x), "=f"(w.y), "=f"(w.z), "=f"(w.w)
                   : "r"(row + vector * 16));
    }
    return w;
  }
};

#endif
} // namespace gpt2c::persistent

// linear for a few rows on tensor cores: Y[M,N] = epilogue(norm(X)[M,K] * W[N,K]^T), M <= Rows, X
// fp16 and W int8
//
// A memory-bound kernel like linear_rowdot, for so many rows that dot products on the plain units
// would take longer than reading W. Sixteen columns of Y are the 16 rows of the mma's A operand,
// eight rows of X its 8 columns, so few rows waste nothing. W goes from device memory straight into
// the operand registers: the order of K within a sum is free as long as W and X agree, so thread t
// of a quad takes 16 bytes of neighbouring k in one load and feeds four of them at a time to one
// mma.m16n8k16: k slots 2t, 2t+1, 2t+8, 2t+9. KSplit warps split the K range of 16 columns and add
// their accumulators in order through shared memory. The first loads of W are in flight before X is
// touched, also across a programmatic dependent launch. X is read once per block, from shared
// memory when a norm is fused.
//
// int8 weights become halves in registers, which is exact. With WGroup > 0 (a multiple of 64 that
// divides K) the sums of each WGroup elements of K are multiplied by wScale of column and group;
// one scale for a column is a matter of the epilogue.
//
// XGroup >= 0: the block quantises the rows of X as `quantize` does, a row in one
// group (0) or in groups of 64, 128 or 256 elements that divide K, and multiplies integers. Without
// groups accumulators stay in int32 to the end.
//
// Config: X (__half), W (signed char), Y (float or __half), Rows (8, 16, 32 or 64),
// KSplit, Warps (a multiple of KSplit), K (static, rows of W a multiple of 16 bytes), WGroup,
// XGroup (-1: X is not quantised), Norm (NormKind), P (type of gain and shift).
// Kernel: x f16[M,K], w W[N,K], y Y[M,N], m, n, then with WGroup wScale f32[N,K/WGroup], then with
// a norm gain P[K], shift P[K] (null: none), epsilon; then the operands of the epilogue.
// Grid: ceil(N / QuantisedRows<C>::columns); block: QuantisedRows<C>::threads; dynamic shared:
// QuantisedRows<C>::sharedBytes. Bytes: sizeof(W) N K + 2 M K + M N sizeof(Y); flops: 2 M N K.
#pragma once

#include "templates/device/int8.cuh"
#include "templates/linear/parts/normalised_rows.cuh"
#include "templates/linear/parts/operands.cuh"

namespace gpt2c {

/// What products of integers, or of halves, are added up in.
template <bool Integers> struct SumOf {
  using Type = float;
};
template <> struct SumOf<true> {
  using Type = int;
};

template <typename C> struct QuantisedRows {
  static constexpr int threads = 32 * C::Warps;
  static constexpr int groups = C::Warps / C::KSplit;
  static constexpr int columns = 16 * groups;
  static constexpr int tiles = C::Rows / 8;
  static constexpr bool quantised = C::XGroup >= 0;
  static constexpr int unit = elementsPer16Bytes<typename C::W>();
  static constexpr int packs = quantised ? 1 : unit / 8; // 16-byte loads of X for one of W
  static constexpr int chunk = 4 * unit;                 // k of a quad's load
  static constexpr int chunks = ceilDiv(ceilDiv(C::K, chunk), C::KSplit);    // of a warp
  static constexpr int kTile = minInt(chunks, (tiles >= 4 ? 4 : 6) / packs); // chunks in flight
  static constexpr bool staged = quantised || C::Norm != NormKind::None;
  // Sums of several groups are added up in fp32.
  static constexpr bool grouped = C::XGroup > 0 || C::WGroup > 0;
  // Rows of X in shared memory: two rows, read together, lie in different banks.
  static constexpr int rowStride =
      quantised ? ceilDiv(C::K, 128) * 128 + 64 : ceilDiv(C::K, 64) * 64 + 8;
  static constexpr int rowBytes = rowStride * (quantised ? 1 : 2);
  static constexpr int xGroups = C::XGroup > 0 ? C::K / maxInt(C::XGroup, 1) : 1; // of a row
  static constexpr int sharedBytes =
      staged ? C::Rows * (rowBytes + (quantised ? xGroups * 4 : 0)) : 0;
  static_assert(C::Warps % C::KSplit == 0 && C::Rows % 8 == 0 && C::K % unit == 0);
  static_assert(Operand<typename C::W>::scaled);
  static_assert(C::WGroup == 0 || (C::WGroup % chunk == 0 && C::K % maxInt(C::WGroup, 1) == 0));
};

/// The four k of word `i` of a lane's W, in rows g and g + 8 of the mma's A operand.
__device__ __forceinline__ void quantisedRowsOperand(unsigned (&a)[4], const uint4 (&w)[2], int i) {
  const unsigned *rows[2] = {&w[0].x, &w[1].x};
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const HalfPairs pairs = Operand<i8>::halves(rows[h][i]);
    a[h] = pairs.low;
    a[h + 2] = pairs.high;
  }
}

/// sums[t] += the products of a chunk: w are the bytes of two columns, x those of a row of each t.
template <int Tiles, typename Sum, int Packs>
__device__ __forceinline__ void quantisedRowsProducts(Sum (&sums)[Tiles][4], const uint4 (&w)[2],
                                                      const uint4 (&x)[Tiles][Packs]) {
  if constexpr (Sum(0.5f) == Sum(0)) { // integers
    const unsigned low[4] = {w[0].x, w[1].x, w[0].y, w[1].y};
    const unsigned high[4] = {w[0].z, w[1].z, w[0].w, w[1].w};
#pragma unroll
    for (int t = 0; t < Tiles; t++) {
      mma16832(sums[t], low, x[t][0].x, x[t][0].y);
      mma16832(sums[t], high, x[t][0].z, x[t][0].w);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 2 * Packs; i++) {
      unsigned weights[4];
      quantisedRowsOperand(weights, w, i);
#pragma unroll
      for (int t = 0; t < Tiles; t++) {
        const uint4 &pack = x[t][i / 2];
        mma16816(sums[t], weights, i % 2 ? pack.z : pack.x, i % 2 ? pack.w : pack.y);
      }
    }
  }
}

namespace tile {

/// The parameters of the kernel and of the tile.
template <typename C, typename Epilogue> struct LinearQuantisedRowsParams {
  const __half *x;
  const typename C::W *w;
  typename C::Y *y;
  int m, n;
  const float *wScale;
  const typename C::P *gain, *shift;
  float epsilon;
  int tileN;
  __half *shared;
  const Epilogue &epilogue;
};

/// A block's columns, in phases; `run` has their order.
template <typename C, typename Epilogue> struct LinearQuantisedRowsTile {
  using L = QuantisedRows<C>;
  using W = typename C::W;
  using Sum = typename SumOf<L::quantised>::Type;
  using Total = typename SumOf<L::quantised && !L::grouped>::Type;
  using WarpSums = Total[C::Warps][C::Rows][17];

  const LinearQuantisedRowsParams<C, Epilogue> p;
  WarpSums &warpSums; // of shared memory
  int warp, lane, row, col0, k0;
  int columns[2];
  i8 *integers; // quantised rows in shared memory, and their scales
  float *rowScales;
  uint4 a[L::kTile][2];
  float scales[L::kTile][2]; // WGroup
  Total acc[L::tiles][4] = {};

  __device__ __forceinline__
  LinearQuantisedRowsTile(const LinearQuantisedRowsParams<C, Epilogue> &p, WarpSums &warpSums)
      : p(p), warpSums(warpSums) {}

  __device__ __forceinline__ void run() {
    begin();
    fetch(0);
    if (lane < 16 && col0 + lane < p.n)
      p.epilogue.prefetchColumn(col0 + lane);
    prefetchNorm<C>(p.gain, p.shift);
    waitForPredecessor();
    releaseSuccessor();
    stage();
#pragma unroll 1
    for (int first = 0; first < L::chunks; first += L::kTile)
      multiply(first);
    finish();
  }

  __device__ __forceinline__ void begin() {
    warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int group = warp / C::KSplit, part = warp % C::KSplit;
    col0 = p.tileN * L::columns + group * 16, row = lane / 4;
    k0 = part * L::chunks * L::chunk + lane % 4 * L::unit;
    // Columns and rows outside are those of the last one: they are not stored.
    columns[0] = min(col0 + row, p.n - 1), columns[1] = min(col0 + row + 8, p.n - 1);
    integers = reinterpret_cast<i8 *>(p.shared);
    rowScales = reinterpret_cast<float *>(integers + C::Rows * L::rowBytes);
  }
  __device__ __forceinline__ bool inside(int chunk) const {
    return C::K % (L::chunk * L::chunks * C::KSplit) == 0 ||
           (chunk < L::chunks && k0 + chunk * L::chunk < C::K);
  }
  __device__ __forceinline__ void fetch(int first) {
#pragma unroll
    for (int u = 0; u < L::kTile; u++)
      if (first + u < L::chunks)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const bool valid = inside(first + u);
          const int k = valid ? k0 + (first + u) * L::chunk : 0;
          a[u][h] = loadPackStreaming<L::unit>(p.w + (i64)columns[h] * C::K + k).raw;
          if (!valid)
            a[u][h] = uint4{};
          if constexpr (C::WGroup > 0)
            scales[u][h] = p.wScale[(i64)columns[h] * (C::K / C::WGroup) + k / C::WGroup];
        }
  }
  /// The rows to shared memory, normalised and quantised.
  __device__ __forceinline__ void stage() {
    if constexpr (L::quantised)
      stageQuantisedRows<C, L::rowStride>(integers, rowScales, p.x, p.m, p.gain, p.shift,
                                          p.epsilon);
    else if constexpr (L::staged)
      stageRows<C, L::rowStride>(p.shared, p.x, p.m, p.gain, p.shift, p.epsilon);
    if constexpr (L::staged)
      __syncthreads();
  }

  /// Chunks from `first` on.
  __device__ __forceinline__ void multiply(int first) {
    if (first > 0)
      fetch(first);
    uint4 b[L::kTile][L::tiles][L::packs];
    fetchRows(b, first);
#pragma unroll
    for (int u = 0; u < L::kTile; u++) {
      if (first + u >= L::chunks)
        break;
      if constexpr (!L::grouped) {
        quantisedRowsProducts(acc, a[u], b[u]);
      } else {
        Sum sums[L::tiles][4] = {};
        quantisedRowsProducts(sums, a[u], b[u]);
        addScaled(sums, first, u);
      }
    }
  }
  __device__ __forceinline__ void fetchRows(uint4 (&b)[L::kTile][L::tiles][L::packs],
                                            int first) const {
#pragma unroll
    for (int u = 0; u < L::kTile; u++)
      if (first + u < L::chunks)
#pragma unroll
        for (int t = 0; t < L::tiles; t++) {
          const bool valid = inside(first + u);
          const int k = valid ? k0 + (first + u) * L::chunk : 0, r = min(t * 8 + row, p.m - 1);
#pragma unroll
          for (int pack = 0; pack < L::packs; pack++) {
            uint4 &to = b[u][t][pack];
            if constexpr (L::quantised)
              to = loadPack<16>(integers + r * L::rowStride + k).raw;
            else
              to = loadPack<8>((L::staged ? p.shared + r * L::rowStride : p.x + r * C::K) + k +
                               pack * 8)
                       .raw;
            if (!valid)
              to = uint4{};
          }
        }
  }
  __device__ __forceinline__ void addScaled(const Sum (&sums)[L::tiles][4], int first, int u) {
    const int k = inside(first + u) ? k0 + (first + u) * L::chunk : 0;
#pragma unroll
    for (int t = 0; t < L::tiles; t++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        float scale = C::WGroup > 0 ? scales[u][e / 2] : 1.0f;
        if constexpr (C::XGroup > 0)
          scale *=
              rowScales[min(t * 8 + lane % 4 * 2 + e % 2, p.m - 1) * L::xGroups + k / C::XGroup];
        acc[t][e] = fmaf(scale, (float)sums[t][e], acc[t][e]);
      }
  }

  /// Adds up the warps that split K. acc[t]: columns col0 + lane / 4 and + 8, rows t * 8 + lane % 4
  /// * 2 and the next.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int t = 0; t < L::tiles; t++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        warpSums[warp][t * 8 + lane % 4 * 2 + e % 2][lane / 4 + e / 2 * 8] = acc[t][e];
    __syncthreads();
    for (int i = threadIdx.x; i < L::groups * 16 * C::Rows; i += L::threads) {
      const int c = i % 16, r = i / 16 % C::Rows, g = i / 16 / C::Rows;
      const int col = p.tileN * L::columns + g * 16 + c;
      if (r >= p.m || col >= p.n)
        continue;
      Total sum = 0;
#pragma unroll
      for (int w = 0; w < C::KSplit; w++)
        sum += warpSums[g * C::KSplit + w][r][c];
      float v[1] = {(float)sum};
      if constexpr (C::XGroup == 0)
        v[0] *= rowScales[r];
      p.epilogue(v, (i64)r, (i64)col);
      storeFloats<1>(p.y + (i64)r * p.n + col, v);
    }
  }
};

template <typename C, typename Epilogue>
__device__ __forceinline__ void
linearQuantisedRows(const __half *x, const typename C::W *__restrict__ w, typename C::Y *y,
                    Extent extent, const float *__restrict__ wScale, RowNorm<typename C::P> norm,
                    int tileN, __half *shared, const Epilogue &epilogue) {
  const int m = extent.m, n = extent.n;
  const typename C::P *const gain = norm.gain, *const shift = norm.shift;
  const float epsilon = norm.epsilon;
  using Tile = LinearQuantisedRowsTile<C, Epilogue>;
  __shared__ typename Tile::WarpSums warpSums;
  Tile tile({x, w, y, m, n, wScale, gain, shift, epsilon, tileN, shared, epilogue}, warpSums);
  tile.run();
}

} // namespace tile
} // namespace gpt2c

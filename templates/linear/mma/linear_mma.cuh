// linear on tensor cores by mma.sync: Y[M,N] = epilogue(X[M,K] * W[N,K]^T), operands fp16 or bf16
// with fp32 sums or int8 with exact int32 sums
//
// Tile: BM x BN of Y per block, K in k-tiles of BK through a ring of Stages shared buffers filled
// by cp.async; WarpsM x WarpsN warps, each BM/WarpsM x BN/WarpsN by mma.m16n8 over 32 bytes of K.
// Rows of a k-tile are 16 bytes longer than BK elements, so that ldmatrix and cp.async meet no bank
// twice. Any M, N, K: rows and K tails are filled with zeros; when a row of K is no multiple of 16
// bytes, k-tiles are loaded element by element.
//
// int8 with XGroup > 0: the sums of each XGroup elements of K are multiplied by xScale of row and
// group and added up in fp32; XGroup is a multiple of BK and K of XGroup. All other scales are a
// matter of the epilogue. YGroup > 0: Y is quantised, one scale for each YGroup columns of a row,
// which lie in one warp; N is a multiple of YGroup, no split K. YGroup 0 and Y of signed char: the
// epilogue ends in integers.
//
// Config: X (__half, __nv_bfloat16 or signed char), Y (float, X's type where that is no integer, or
// signed char, the last with YGroup), BM, BN, BK (32 to 128 bytes), WarpsM, WarpsN, Stages, SplitK,
// XGroup, YGroup.
// Kernel: x X[M,K], w X[N,K], y Y[M,N], m, n, k, then with XGroup xScale f32[M,K/XGroup], with
// YGroup yScale f32[M,N/YGroup], then, if SplitK > 1, partial f32[SplitK,M,N] and counters
// u32[tiles] (zero before the first launch, zero after each); then the operands of the epilogue.
// Grid: (ceil(M / BM), ceil(N / BN), SplitK); block: LinearMma<C>::threads; dynamic shared:
// LinearMma<C>::sharedBytes. Bytes: sizeof(X) (M K + N K) + sizeof(Y) M N + epilogue operands;
// flops: 2 M N K.
#pragma once

#include "templates/device/int8.cuh"
#include "templates/device/mma.cuh"
#include "templates/linear/parts/linear_store.cuh"
#include "templates/linear/parts/linear_store_quantised.cuh"
#include "templates/linear/parts/operands.cuh"

namespace gpt2c {

template <typename C> struct LinearMma {
  static constexpr int warps = C::WarpsM * C::WarpsN;
  static constexpr int threads = 32 * warps;
  static constexpr int warpM = C::BM / C::WarpsM;
  static constexpr int warpN = C::BN / C::WarpsN;
  static constexpr int unit = elementsPer16Bytes<typename C::X>();
  static constexpr int rowStride = C::BK + unit;
  static constexpr int stageElements = (C::BM + C::BN) * rowStride;
  static constexpr int sharedBytes = C::Stages * stageElements * (int)sizeof(typename C::X);
  static_assert(warpM % 16 == 0 && warpN % 16 == 0 && C::BK % (2 * unit) == 0 && C::Stages >= 2);
  static_assert(C::XGroup % C::BK == 0);
  static_assert(C::YGroup == 0 || (warpN % maxInt(C::YGroup, 1) == 0 && C::SplitK == 1));
};

/// The sum of products of two elements, and the matrix instruction over 32 bytes of K.
template <typename T> struct MmaOf : Mma<T> {
  using Sum = float;
};
template <> struct MmaOf<i8> {
  using Sum = int;
  static __device__ __forceinline__ void multiply(int (&c)[4], const unsigned (&a)[4], unsigned b0,
                                                  unsigned b1) {
    mma16832(c, a, b0, b1);
  }
};

namespace tile {

/// Loads `Rows` rows of a K-major matrix, columns [k0, k0 + BK), into shared memory.
template <int Rows, int BK, int Threads, typename T>
__device__ __forceinline__ void loadKTile(T *shared, const T *global, int row0, int rows, int k0,
                                          int kEnd, i64 k) {
  constexpr int unit = elementsPer16Bytes<T>(), chunks = BK / unit, rowStride = BK + unit;
  if (k % unit == 0) {
#pragma unroll
    for (int i = 0; i < ceilDiv(Rows * chunks, Threads); i++) {
      int id = i * Threads + threadIdx.x;
      if (Rows * chunks % Threads != 0 && id >= Rows * chunks)
        break;
      int r = id / chunks, c = id % chunks * unit;
      bool valid = row0 + r < rows && k0 + c < kEnd;
      copyAsync16(shared + r * rowStride + c, valid ? global + (row0 + r) * k + k0 + c : global,
                  valid);
    }
  } else {
    for (int id = threadIdx.x; id < Rows * BK; id += Threads) {
      int r = id / BK, c = id % BK;
      bool valid = row0 + r < rows && k0 + c < kEnd;
      shared[r * rowStride + c] = valid ? global[(row0 + r) * k + k0 + c] : T(0.0f);
    }
  }
}

/// acc += scale of the row * part, and part = 0, for the tile of a warp whose first row is row0;
/// the scales are those of one group, `stride` apart from row to row.
template <int TilesM, int TilesN>
__device__ __forceinline__ void addScaled(float (&acc)[TilesM][TilesN][4],
                                          int (&part)[TilesM][TilesN][4], const float *scales,
                                          int stride, int row0, int m) {
#pragma unroll
  for (int i = 0; i < TilesM; i++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int row = row0 + i * 16 + h * 8 + threadIdx.x % 32 / 4;
      const float scale = scales[(i64)min(row, m - 1) * stride];
#pragma unroll
      for (int j = 0; j < TilesN; j++)
#pragma unroll
        for (int e = 2 * h; e < 2 * h + 2; e++) {
          acc[i][j][e] = fmaf(scale, (float)part[i][j][e], acc[i][j][e]);
          part[i][j][e] = 0;
        }
    }
}

template <typename C, typename Epilogue>
__device__ __forceinline__ void
linearMma(const typename C::X *x, const typename C::X *__restrict__ w, typename C::Y *y,
          Sizes sizes, GroupScales scales, SplitSums splits, TileIndex index, typename C::X *shared,
          const Epilogue &epilogue) {
  const int m = sizes.m, n = sizes.n, k = sizes.k;
  const float *const xScale = scales.x;
  float *const yScale = scales.y;
  float *const partial = splits.partial;
  unsigned *const counters = splits.counters;
  const int tileM = index.m, tileN = index.n, split = index.split;
  using L = LinearMma<C>;
  using X = typename C::X;
  using Sum = typename MmaOf<X>::Sum;
  constexpr int tilesM = L::warpM / 16, tilesN = L::warpN / 8;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row0 = tileM * C::BM, col0 = tileN * C::BN;
  const int warpRow = warp / C::WarpsN * L::warpM, warpCol = warp % C::WarpsN * L::warpN;

  int kBegin = 0, kEnd = k;
  if constexpr (C::SplitK > 1)
    splitRange(k, C::SplitK, split, maxInt(C::BK, C::XGroup), kBegin, kEnd);
  const int kTiles = (kEnd - kBegin + C::BK - 1) / C::BK;

  auto load = [&](int kTile) {
    if (kTile < kTiles) {
      X *a = shared + kTile % C::Stages * L::stageElements;
      loadKTile<C::BM, C::BK, L::threads>(a, x, row0, m, kBegin + kTile * C::BK, kEnd, k);
      loadKTile<C::BN, C::BK, L::threads>(a + C::BM * L::rowStride, w, col0, n,
                                          kBegin + kTile * C::BK, kEnd, k);
    }
    copyAsyncCommit();
  };

  Sum sums[tilesM][tilesN][4] = {};
  float acc[tilesM][tilesN][4] = {};
  waitForPredecessor();
#pragma unroll
  for (int s = 0; s < C::Stages - 1; s++)
    load(s);

  for (int kTile = 0; kTile < kTiles; kTile++) {
    copyAsyncWait<C::Stages - 2>();
    __syncthreads();
    load(kTile + C::Stages - 1);
    const X *a = shared + kTile % C::Stages * L::stageElements;
    const X *b = a + C::BM * L::rowStride;
    // Lane addresses for ldmatrix: A as (rows 0-7, 8-15) x (k units 0, 1), B as (k units 0, 1) x
    // (columns 0-7, 8-15).
    const X *aLane = a + (warpRow + lane % 16) * L::rowStride + lane / 16 * L::unit;
    const X *bLane =
        b + (warpCol + lane % 8 + lane / 16 * 8) * L::rowStride + lane / 8 % 2 * L::unit;
#pragma unroll
    for (int kk = 0; kk < C::BK; kk += 2 * L::unit) {
      unsigned af[tilesM][4], bf[tilesN / 2][4];
#pragma unroll
      for (int i = 0; i < tilesM; i++)
        loadMatrix4(af[i], aLane + i * 16 * L::rowStride + kk);
#pragma unroll
      for (int j = 0; j < tilesN / 2; j++)
        loadMatrix4(bf[j], bLane + j * 16 * L::rowStride + kk);
#pragma unroll
      for (int i = 0; i < tilesM; i++)
#pragma unroll
        for (int j = 0; j < tilesN; j++)
          MmaOf<X>::multiply(sums[i][j], af[i], bf[j / 2][j % 2 * 2], bf[j / 2][j % 2 * 2 + 1]);
    }
    if constexpr (C::XGroup > 0) {
      const int end = kBegin + (kTile + 1) * C::BK;
      if (end % C::XGroup == 0)
        addScaled(acc, sums, xScale + end / C::XGroup - 1, k / C::XGroup, row0 + warpRow, m);
    }
  }
  if constexpr (C::XGroup == 0)
#pragma unroll
    for (int i = 0; i < tilesM; i++)
#pragma unroll
      for (int j = 0; j < tilesN; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          acc[i][j][e] = (float)sums[i][j][e];

  if constexpr (C::YGroup > 0)
    storeTileQuantised<C::YGroup>(acc, y, yScale, m, n, row0 + warpRow, col0 + warpCol, epilogue);
  else if constexpr (Operand<typename C::Y>::scaled && C::SplitK == 1)
    storeTileBytes(acc, y, m, n, row0 + warpRow, col0 + warpCol, epilogue);
  else
    storeTile<C::SplitK>(acc, y, m, n, row0 + warpRow, col0 + warpCol, partial,
                         counters + tileM * ((n + C::BN - 1) / C::BN) + tileN, split, epilogue);
}

} // namespace tile
} // namespace gpt2c

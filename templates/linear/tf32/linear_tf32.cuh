// linear in fp32 on tensor cores by 3xTF32 (tf32.cuh): Y[M,N] = epilogue(X[M,K] * W[N,K]^T)
//
// Tile: BM x BN of Y per block, K in k-tiles of 32 (128 bytes) through a ring of Stages shared
// buffers filled by cp.async; 16-byte unit u of row r of a k-tile lies at unit u ^ (r mod 8).
// WarpsM x WarpsN warps, each BM/WarpsM x BN/WarpsN by mma.m16n8k8. Operands are split in
// registers, as they come from shared memory; a k-tile's sums come from the matrix unit, those of
// all k-tiles are added in fp32.
//
// With SplitK > 1 that many blocks share a tile, from sm_90 on as a thread block cluster: their
// sums meet in distributed shared memory, in order of their index, and each block ends a part of
// the tile. Before, they meet in `partial`.
//
// Weights are fetched before the predecessor has ended.
//
// Config: Y (float or __half), BM, BN, WarpsM, WarpsN, Stages, SplitK (at most 8).
// Kernel: x f32[M,K], w f32[N,K], y Y[M,N], m, n, k (a multiple of 4), then, if SplitK > 1, partial
// f32[SplitK,M,N] and counters u32[tiles] (zero before the first launch, zero after each); then the
// operands of the epilogue.
// Grid: (ceil(M / BM), ceil(N / BN), SplitK), clusters of (1, 1, SplitK); block:
// LinearTf32<C>::threads; dynamic shared:
// LinearTf32<C>::sharedBytes. Bytes: 4 (M K + N K) + sizeof(Y) M N + epilogue operands; flops:
// 2 M N K, which are 6 M N K of the matrix unit.
#pragma once

#include "templates/device/tf32.cuh"
#include "templates/linear/parts/linear_store.cuh"
#include "templates/linear/parts/operands.cuh"

namespace gpt2c {

template <typename C> struct LinearTf32 {
  static constexpr int BK = 32;
  static constexpr int threads = 32 * C::WarpsM * C::WarpsN;
  static constexpr int warpM = C::BM / C::WarpsM, warpN = C::BN / C::WarpsN;
  static constexpr int tilesM = warpM / 16, tilesN = warpN / 8;
  // Column tiles whose operands are split at a time.
  static constexpr int group = tilesN % 4 == 0   ? 4
                               : tilesN % 3 == 0 ? 3
                               : tilesN % 2 == 0 ? 2
                               : tilesN <= 7     ? tilesN
                                                 : 1;
  static constexpr int stageFloats = (C::BM + C::BN) * BK;
  static constexpr int sharedBytes = C::Stages * stageFloats * 4;
  // Sums of a cluster in shared memory: rows so far apart that a warp's stores meet no bank twice.
  static constexpr int sumStride = C::BN + (40 - C::BN % 32) % 32;
  static_assert(warpM % 16 == 0 && warpN % 8 == 0 && C::Stages >= 2);
  static_assert(C::SplitK == 1 || C::BM * sumStride * 4 <= sharedBytes);
};

namespace tile {

/// Loads `Rows` rows of a K-major matrix, columns [k0, k0 + 32), into a k-tile. Rows outside are
/// the last one, columns from kEnd on are zero.
template <int Rows, int Threads>
__device__ __forceinline__ void loadTf32Slab(float *kTile, const float *from, int row0, int rows,
                                             int k0, int kEnd, int k) {
#pragma unroll
  for (int i = 0; i < ceilDiv(Rows * 8, Threads); i++) {
    const int id = i * Threads + threadIdx.x, r = id / 8, unit = id % 8;
    if (Rows * 8 % Threads != 0 && id >= Rows * 8)
      break;
    const int col = k0 + unit * 4;
    const bool valid = col < kEnd;
    copyAsync16(kTile + r * 32 + (unit ^ r % 8) * 4,
                from + (i64)min(row0 + r, rows - 1) * k + (valid ? col : 0), valid);
  }
}

/// Where a lane finds the operands of a warp in a k-tile, for ldmatrix of 8 rows by 4 floats each:
/// A as (rows 0-7, 8-15) x (k 0-3, 4-7), B as 8 columns x (k 0-3, 4-7, 8-11, 12-15).
template <typename C> struct Tf32Lane {
  using L = LinearTf32<C>;
  int warpRow, warpCol; // of the warp's tile in the block's
  unsigned a, b, unitA, unitB;

  __device__ __forceinline__ Tf32Lane(int warp, int lane)
      : warpRow(warp / C::WarpsN * L::warpM), warpCol(warp % C::WarpsN * L::warpN),
        a((warpRow + lane % 16) * 128), b((C::BM + warpCol + lane % 8) * 128),
        unitA((lane / 16 ^ lane % 8) * 16), unitB((lane / 8 ^ lane % 8) * 16) {}
};

/// acc += the products of the k-tile at the shared address `kTile`.
template <typename C>
__device__ __forceinline__ void
multiplyTf32Slab(float (&acc)[LinearTf32<C>::tilesM][LinearTf32<C>::tilesN][4],
                 const Tf32Lane<C> &lane, unsigned kTile) {
  using L = LinearTf32<C>;
  float sums[L::tilesM][L::tilesN][4];
#pragma unroll
  for (int kk = 0; kk < 2; kk++) { // 16 columns of K
    tf32::Split<4> a[2][L::tilesM];
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int i = 0; i < L::tilesM; i++) {
        unsigned bits[4];
        loadMatrix4(bits, kTile + lane.a + (lane.unitA ^ (kk * 64 + h * 32)) + i * 16 * 128);
#pragma unroll
        for (int e = 0; e < 4; e++)
          a[h][i].set(e, bits[e]);
      }
#pragma unroll
    for (int j0 = 0; j0 < L::tilesN; j0 += L::group) {
      tf32::Split<2> b[2][L::group];
#pragma unroll
      for (int j = 0; j < L::group; j++) {
        unsigned bits[4];
        loadMatrix4(bits, kTile + lane.b + (lane.unitB ^ kk * 64) + (j0 + j) * 8 * 128);
#pragma unroll
        for (int e = 0; e < 4; e++)
          b[e / 2][j].set(e % 2, bits[e]);
      }
#pragma unroll
      for (int h = 0; h < 2; h++)
#pragma unroll
        for (int term = 0; term < 3; term++)
#pragma unroll
          for (int j = 0; j < L::group; j++)
#pragma unroll
            for (int i = 0; i < L::tilesM; i++) {
              float(&c)[4] = sums[i][j0 + j];
              const auto &left = term == 0 ? a[h][i].low : a[h][i].high;
              const auto &right = term == 1 ? b[h][j].low : b[h][j].high;
              if (kk == 0 && h == 0 && term == 0)
                tf32::mma1688<false>(c, left, right[0], right[1]);
              else
                tf32::mma1688(c, left, right[0], right[1]);
            }
    }
  }
#pragma unroll
  for (int i = 0; i < L::tilesM; i++)
#pragma unroll
    for (int j = 0; j < L::tilesN; j++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        acc[i][j][e] += sums[i][j][e];
}

#if __CUDA_ARCH__ >= 900
/// Stores a warp's sums where endPart finds them.
template <typename C>
__device__ __forceinline__ void
putSums(float *shared, const float (&acc)[LinearTf32<C>::tilesM][LinearTf32<C>::tilesN][4],
        const Tf32Lane<C> &lane) {
  using L = LinearTf32<C>;
  float *to = shared + (lane.warpRow + threadIdx.x % 32 / 4) * L::sumStride + lane.warpCol +
              threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < L::tilesM; i++)
#pragma unroll
    for (int j = 0; j < L::tilesN; j++)
#pragma unroll
      for (int half = 0; half < 2; half++)
        storeFloats<2>(to + (i * 16 + half * 8) * L::sumStride + j * 8,
                       {acc[i][j][half * 2], acc[i][j][half * 2 + 1]});
}
/// Adds up a cluster's sums for the share of the tile that block `split` ends, and ends it.
template <typename C, typename Epilogue>
__device__ __forceinline__ void endPart(typename C::Y *y, int m, int n, int row0, int col0,
                                        int split, const float *shared, const Epilogue &epilogue) {
  using L = LinearTf32<C>;
  constexpr int quads = C::BM * C::BN / 4, share = ceilDiv(quads, C::SplitK);
#pragma unroll
  for (int i = 0; i < ceilDiv(share, L::threads); i++) {
    const int at = i * L::threads + threadIdx.x, id = min(split * share + at, quads - 1);
    const int r = id / (C::BN / 4), c = id % (C::BN / 4) * 4, row = row0 + r, col = col0 + c;
    float4 part[C::SplitK];
#pragma unroll
    for (int s = 0; s < C::SplitK; s++)
      part[s] = loadFromCluster(reinterpret_cast<const float4 *>(shared + r * L::sumStride + c), s);
    float v[4] = {};
#pragma unroll
    for (int s = 0; s < C::SplitK; s++)
      v[0] += part[s].x, v[1] += part[s].y, v[2] += part[s].z, v[3] += part[s].w;
    const bool inside = at < share && split * share + at < quads && row < m;
    if (n % 4 == 0) {
      epilogue(v, (i64)min(row, m - 1), (i64)min(col, n - 4));
      if (inside && col < n)
        gpt2c::epilogue::storeResults<Epilogue>(y, (i64)row, n, col, v);
    } else {
#pragma unroll
      for (int e = 0; e < 4; e++)
        if (inside && col + e < n) {
          float one[1] = {v[e]};
          epilogue(one, (i64)row, (i64)(col + e));
          gpt2c::epilogue::storeResults<Epilogue>(y, (i64)row, n, col + e, one);
        }
    }
  }
}
#endif

template <typename C, typename Epilogue>
__device__ __forceinline__ void
linearTf32(const float *x, const float *__restrict__ w, typename C::Y *y, Sizes sizes,
           SplitSums splits, TileIndex index, float *shared, const Epilogue &epilogue) {
  const int m = sizes.m, n = sizes.n, k = sizes.k;
  float *const partial = splits.partial;
  unsigned *const counters = splits.counters;
  const int tileM = index.m, tileN = index.n, split = index.split;
  using L = LinearTf32<C>;
  const int row0 = tileM * C::BM, col0 = tileN * C::BN;
  const Tf32Lane<C> lane(threadIdx.x / 32, threadIdx.x % 32);

  int kBegin = 0, kEnd = k;
  if constexpr (C::SplitK > 1)
    splitRange(k, C::SplitK, split, L::BK, kBegin, kEnd);
  const int kTiles = (kEnd - kBegin + L::BK - 1) / L::BK;

  auto kTileAt = [&](int kTile) { return shared + kTile % C::Stages * L::stageFloats; };
  auto loadX = [&](int kTile) {
    loadTf32Slab<C::BM, L::threads>(kTileAt(kTile), x, row0, m, kBegin + kTile * L::BK, kEnd, k);
  };
  auto loadW = [&](int kTile) {
    loadTf32Slab<C::BN, L::threads>(kTileAt(kTile) + C::BM * L::BK, w, col0, n,
                                    kBegin + kTile * L::BK, kEnd, k);
  };
#pragma unroll
  for (int s = 0; s < C::Stages - 1; s++)
    if (s < kTiles)
      loadW(s);
  for (int i = threadIdx.x; i < C::BN && col0 + i < n; i += L::threads)
    epilogue.prefetchColumn(col0 + i);
  waitForPredecessor();
#pragma unroll
  for (int s = 0; s < C::Stages - 1; s++) {
    if (s < kTiles)
      loadX(s);
    copyAsyncCommit();
  }

  float acc[L::tilesM][L::tilesN][4] = {};
  for (int kTile = 0; kTile < kTiles; kTile++) {
    copyAsyncWait<C::Stages - 2>();
    __syncthreads();
    if (kTile + C::Stages - 1 < kTiles) {
      loadX(kTile + C::Stages - 1);
      loadW(kTile + C::Stages - 1);
    }
    copyAsyncCommit();
    multiplyTf32Slab<C>(acc, lane, sharedAddress(kTileAt(kTile)));
  }
#if __CUDA_ARCH__ >= 900
  if constexpr (C::SplitK > 1) {
    copyAsyncWait<0>();
    __syncthreads();
    putSums<C>(shared, acc, lane);
    clusterBarrier();
    endPart<C>(y, m, n, row0, col0, split, shared, epilogue);
    clusterBarrier(); // no block ends while others read its sums
    return;
  }
#endif
  storeTile<C::SplitK>(acc, y, m, n, row0 + lane.warpRow, col0 + lane.warpCol, partial,
                       counters + tileM * ((n + C::BN - 1) / C::BN) + tileN, split, epilogue);
}

} // namespace tile
} // namespace gpt2c

// linear for up to some hundred rows, operands fp16 or bf16, sm_90a alone:
// Y[M,N] = epilogue(X[M,K] * W[N,K]^T)
//
// BM x BN of Y per block: BM / 64 warpgroups, each 64 x BN by wgmma.m64nBNk16 with fp32
// accumulators in registers, and a warp of which one thread has TMA fill a ring of
// Stages k-tiles of 64 columns of K. A warpgroup hands a k-tile back while it multiplies the next.
//
// With SplitK > 1 that many blocks share a tile as a thread block cluster. Each sends the others
// their share of the columns' sums, adds up its own in order of the blocks' index and ends it.
//
// A norm of x may be folded into the epilogue, and statistics of Y's rows be left for the next
// product (row_statistics.cuh).
//
// Weights are fetched before the predecessor has ended: the first k-tiles into shared memory, the
// next ones into L2, as far as memory has them there in time. TMA takes one copy after
// the other, so X comes later behind more of them where blocks begin when their predecessor ends. A
// short sum has two thirds of its ring fetched so; a long one, which fetches all the while, and
// parts of one all.
//
// Config: X (__half or __nv_bfloat16), Y (float or X's type), BM (64 or 128), BN (a multiple of 8
// that wgmma lists), Stages, XRows (KTileRing: at most BM, no less than M where it is less),
// SplitK (at most 8, a divisor of BN / 8 and at most ceil(K / 64)),
// Lines (whether rows leave in lines by way of shared memory: Y has two bytes, BN divides N, SplitK
// is 1).
// Kernel: xMap X[M,K] in boxes of XRows rows, wMap W[N,K] in boxes of BN rows, y Y[M,N], m, n, k (a
// multiple of 8), then the operands of the epilogue, of the norm and of the statistics.
// Grid: (ceil(M / BM), ceil(N / BN), SplitK), or the columns' tiles first, clusters of
// (1, 1, SplitK); block: LinearTma<C>::threads; dynamic shared: LinearTma<C>::sharedBytes.
// Bytes: 2 (M K + N K) + sizeof(Y) M N + epilogue operands; flops: 2 M N K.
#pragma once

#include "templates/linear/parts/linear_tma_tile.cuh"
#include "templates/linear/parts/operands.cuh"

namespace gpt2c {

template <typename C> struct LinearTma {
  using X = typename C::X;
  static constexpr int groups = C::BM / 64;
  static constexpr int consumers = 128 * groups;
  static constexpr bool whole = C::N % C::BN == 0;
  static constexpr int threads = consumers + 32;
  static constexpr int BK = 64;
  static constexpr int kTilesBytes = C::Stages * (C::BM + C::BN) * BK * 2;
  static constexpr int tiles = C::BN / 8, share = tiles / C::SplitK;
  static constexpr int sumsAt = kTilesBytes;
  static constexpr int sharedBytes =
      sumsAt + clusterSumsBytes(C::SplitK, consumers, share) + 1024; // k-tiles begin at 1 KiB
  static_assert(C::BM % 64 == 0 && C::BN % 8 == 0 && C::Stages >= 2 && tiles % C::SplitK == 0);
};

namespace tile {

template <typename C, typename Epilogue, typename Norm = NoNorm, typename Statistics = NoStatistics>
__device__ __forceinline__ void
linearTma(const TensorMap &xMap, const TensorMap &wMap, typename C::Y *y, int m, TileIndex index,
          void *dynamicShared, Epilogue epilogue, Norm norm = {}, Statistics statistics = {}) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const int tileM = index.m, tileN = index.n, split = index.split;
  using L = LinearTma<C>;
  using Ring = KTileRing<C::BM, C::BN, C::Stages, L::consumers / 32, C::XRows>;
  __shared__ Ring ring;
  __shared__ ClusterSums<C::SplitK, L::consumers, L::share> sums;
  __shared__ alignas(
      16) float columns[maxInt(1, Epilogue::columnOperands + Norm::columnOperands)][C::BN];
  __half *shared = alignedKTiles(dynamicShared);
  // The compiler has to see that a warp agrees on its role, or it waits after every wgmma.
  const int group = __shfl_sync(fullWarp, threadIdx.x / 128, 0);
  const int row0 = tileM * C::BM, col0 = tileN * C::BN;
  // Parts of K are equal: what the last has too many are zeros.
  constexpr int kTiles = ceilDiv(ceilDiv(C::K, L::BK), C::SplitK);
  const int firstKTile = split * kTiles;
  if (threadIdx.x == 0) {
    if constexpr (C::SplitK > 1)
      sums.init();
    ring.init();
  }
  __syncthreads();
  if constexpr (C::SplitK > 1)
    sums.begin();

  if (group == L::groups) {
    if (threadIdx.x % 32 == 0) {
      prefetchMap(xMap);
      auto loadX = [&](int kTile) {
        ring.loadX(shared, kTile % C::Stages, xMap, row0, (firstKTile + kTile) * L::BK);
      };
      auto loadW = [&](int kTile) {
        ring.loadW(shared, kTile % C::Stages, wMap, col0, (firstKTile + kTile) * L::BK);
      };
      constexpr int first = minInt(C::Stages, kTiles);
      constexpr int ahead = C::SplitK > 1 || kTiles > 16 ? first : maxInt(1, first * 2 / 3);
      // Of all blocks 4 MB.
      constexpr int prefetched = minInt(kTiles, ahead + maxInt(2, (4 << 20) / (C::N * 128)));
      for (int kTile = 0; kTile < ahead; kTile++)
        loadW(kTile);
      if (tileM == 0)
        for (int kTile = ahead; kTile < prefetched; kTile++)
          prefetchBox(wMap, col0, (firstKTile + kTile) * L::BK);
      waitForPredecessor();
      releaseSuccessor();
      for (int kTile = 0; kTile < ahead; kTile++)
        loadX(kTile);
      for (int kTile = ahead; kTile < first; kTile++) {
        loadW(kTile);
        loadX(kTile);
      }
      for (int kTile = first; kTile < kTiles; kTile++) {
        ring.empty[kTile % C::Stages].wait((kTile / C::Stages - 1) % 2);
        loadW(kTile);
        loadX(kTile);
      }
    }
    __syncwarp();
    if constexpr (C::SplitK > 1)
      sums.allHaveBegun();
    return;
  }

  computeTile<C, L, kTiles>(ring, sums, shared, columns, y, m, row0, col0, split, group, epilogue,
                            norm, statistics);
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c

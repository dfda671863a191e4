// linear in fp32 by 3xTF32 (tf32.cuh) and wgmma, sm_90a alone: Y[M,N] = epilogue(X[M,K] * W[N,K]^T)
//
// BM x BN of Y per block, k-tiles of 32 through a ring of Stages. A warpgroup has TMA fill it and
// splits W in shared memory, the high parts in place, the low ones beside them; BM / 64 warpgroups
// split the rows of X in registers and multiply, 64 x BN each. Tensor cores accumulate within a
// k-tile, the results of all k-tiles are added in fp32.
//
// With SplitK > 1 that many blocks share a tile as a thread block cluster, as in linear_tf32.cuh.
//
// Config: Y (float or __half), BM (64 or 128), BN (that wgmmaTf32 lists), Stages, SplitK (at most
// 8).
// Kernel: xMap X f32[M,K] in boxes of BM rows, wMap W f32[N,K] in boxes of BN rows (to a tensor map
// 2 K halves are K floats), y Y[M,N], m, n, k (a multiple of 4), then the operands of the epilogue.
// Grid: (ceil(M / BM), ceil(N / BN), SplitK), clusters of (1, 1, SplitK); block:
// LinearTf32Wgmma<C>::threads; dynamic shared: LinearTf32Wgmma<C>::sharedBytes. Bytes and flops: as
// there.
#pragma once

#include "templates/device/tma.cuh"
#include "templates/device/wgmma.cuh"
#include "templates/linear/parts/operands.cuh"
#include "templates/linear/tf32/linear_tf32.cuh"

namespace gpt2c {

/// The tile as linear_tf32 sees it: a warp has 16 rows and all columns.
template <typename C> struct Tf32WgmmaTile : C {
  static constexpr int WarpsM = C::BM / 16, WarpsN = 1;
};

template <typename C> struct LinearTf32Wgmma {
  static constexpr int groups = C::BM / 64, consumers = 128 * groups;
  static constexpr int threads = consumers + 128;
  static constexpr int BK = 32, tiles = C::BN / 8;
  static constexpr int stageFloats = (C::BM + 2 * C::BN) * BK;
  static constexpr int sharedBytes = C::Stages * stageFloats * 4 + 1024; // k-tiles begin at 1 KiB
  static_assert(C::BM % 64 == 0 && C::BN % 8 == 0 && C::Stages >= 2);
};

namespace tile {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// The parameters of the kernel and of the tile.
template <typename C, typename Epilogue> struct LinearTf32WgmmaParams {
  const TensorMap &xMap, &wMap;
  typename C::Y *y;
  int m, n, k, tileM, tileN, split;
  void *dynamicShared;
  const Epilogue &epilogue;
};

/// A block's roles: a warpgroup that has k-tiles loaded and splits W, and the consumers.
template <typename C, typename Epilogue> struct LinearTf32WgmmaBlock {
  using L = LinearTf32Wgmma<C>;
  using Tile = Tf32WgmmaTile<C>;
  struct Barriers { // of k-tiles that are full, whose W is split, that may be filled again
    Barrier full[C::Stages], halved[C::Stages], empty[C::Stages];
  };

  const LinearTf32WgmmaParams<C, Epilogue> p;
  Barriers &barriers; // of shared memory, as the ring is
  float *shared;
  int warp, group, row0, col0, firstKTile, kTiles;

  __device__ __forceinline__ LinearTf32WgmmaBlock(const LinearTf32WgmmaParams<C, Epilogue> &p,
                                                  Barriers &barriers)
      : p(p), barriers(barriers) {}

  __device__ __forceinline__ void run() {
    begin();
    if (group == L::groups)
      produce();
    else
      consume();
  }

  __device__ __forceinline__ void begin() {
    shared = reinterpret_cast<float *>(alignedKTiles(p.dynamicShared));
    // The compiler has to see that a warp agrees on its role, or it waits after every wgmma.
    warp = __shfl_sync(fullWarp, threadIdx.x / 32, 0), group = warp / 4;
    row0 = p.tileM * C::BM, col0 = p.tileN * C::BN;
    const int all = (p.k + L::BK - 1) / L::BK;
    firstKTile = all * p.split / C::SplitK;
    kTiles = all * (p.split + 1) / C::SplitK - firstKTile;
    if (threadIdx.x == 0) {
      for (int s = 0; s < C::Stages; s++) {
        barriers.full[s].init(1);
        barriers.halved[s].init(4);
        barriers.empty[s].init(4 * L::groups);
      }
      fenceBarrierInit();
    }
    __syncthreads();
  }
  __device__ __forceinline__ float *xAt(int stage) const { return shared + stage * L::stageFloats; }
  __device__ __forceinline__ float *wAt(int stage) const {
    return shared + stage * L::stageFloats + C::BM * L::BK;
  }

  // The producer
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ void produce() {
    const bool loads = threadIdx.x == L::consumers;
    if (loads)
      startLoads();
    __syncwarp();
#pragma unroll 1
    for (int kTile = 0; kTile < kTiles; kTile++) {
      const int stage = kTile % C::Stages;
      barriers.full[stage].wait(kTile / C::Stages % 2);
      splitW(stage);
      fenceShared();
      __syncwarp();
      if (threadIdx.x % 32 == 0)
        barriers.halved[stage].arrive();
      // The stage before is the next to be free.
      const int next = kTile - 1 + C::Stages;
      if (loads && kTile > 0 && next < kTiles) {
        barriers.empty[next % C::Stages].wait((kTile - 1) / C::Stages % 2);
        loadW(next);
        loadX(next);
      }
      __syncwarp();
    }
    if constexpr (C::SplitK > 1) {
      clusterBarrier();
      clusterBarrier();
    }
  }
  __device__ __forceinline__ void startLoads() {
    const int first = min(C::Stages, kTiles);
    for (int kTile = 0; kTile < first; kTile++)
      loadW(kTile);
    if (p.tileM == 0)
      for (int kTile = first; kTile < kTiles; kTile++)
        prefetchBox(p.wMap, col0, column(kTile));
    waitForPredecessor();
    releaseSuccessor();
    for (int kTile = 0; kTile < first; kTile++)
      loadX(kTile);
  }
  __device__ __forceinline__ int column(int kTile) const {
    return (firstKTile + kTile) * L::BK * 2;
  }
  __device__ __forceinline__ void loadX(int kTile) {
    const int stage = kTile % C::Stages;
    copyBox(xAt(stage), p.xMap, row0, column(kTile), barriers.full[stage]);
  }
  __device__ __forceinline__ void loadW(int kTile) {
    const int stage = kTile % C::Stages;
    barriers.full[stage].expect((C::BM + C::BN) * L::BK * 4);
    copyBox(wAt(stage), p.wMap, col0, column(kTile), barriers.full[stage]);
  }
  /// High parts take the place of W, low parts follow.
  __device__ __forceinline__ void splitW(int stage) const {
    uint4 *high = reinterpret_cast<uint4 *>(wAt(stage)), *low = high + C::BN * 8;
#pragma unroll
    for (int i = 0; i < ceilDiv(C::BN * 8, 128); i++) {
      const int id = i * 128 + threadIdx.x % 128;
      if (C::BN * 8 % 128 != 0 && id >= C::BN * 8)
        break;
      const uint4 v = high[id];
      tf32::Split<4> parts;
      parts.set(0, v.x);
      parts.set(1, v.y);
      parts.set(2, v.z);
      parts.set(3, v.w);
      high[id] = uint4{parts.high[0], parts.high[1], parts.high[2], parts.high[3]};
      low[id] = uint4{parts.low[0], parts.low[1], parts.low[2], parts.low[3]};
    }
  }

  // The consumers
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ void consume() {
    const Tf32Lane<Tile> lane(warp, threadIdx.x % 32);
    float acc[1][L::tiles][4] = {};
    for (int i = threadIdx.x; i < C::BN && col0 + i < p.n; i += L::consumers)
      p.epilogue.prefetchColumn(col0 + i);
    waitForPredecessor();
#pragma unroll 1
    for (int kTile = 0; kTile < kTiles; kTile++)
      multiply(kTile, lane, acc[0]);
    if constexpr (C::SplitK == 1) {
      storeTile<1>(acc, p.y, p.m, p.n, row0 + lane.warpRow, col0, nullptr, nullptr, 0, p.epilogue);
    } else {
      // Every warp of the block has read every k-tile.
      asm volatile("bar.sync 1, %0;" ::"n"(L::consumers) : "memory");
      putSums<Tile>(shared, acc, lane);
      clusterBarrier();
      endPart<Tile>(p.y, p.m, p.n, row0, col0, p.split, shared, p.epilogue);
      clusterBarrier(); // no block ends while others read its accumulators
    }
  }
  __device__ __forceinline__ void multiply(int kTile, const Tf32Lane<Tile> &lane,
                                           float (&acc)[L::tiles][4]) {
    const int stage = kTile % C::Stages;
    barriers.full[stage].wait(kTile / C::Stages % 2);
    tf32::Split<4> a[4];
#pragma unroll
    for (int kk = 0; kk < 4; kk++) {
      unsigned bits[4];
      loadMatrix4(bits, sharedAddress(xAt(stage)) + lane.a + (lane.unitA ^ (kk * 32)));
#pragma unroll
      for (int e = 0; e < 4; e++)
        a[kk].set(e, bits[e]);
    }
    barriers.halved[stage].wait(kTile / C::Stages % 2);
    const u64 high = swizzledOperand(wAt(stage)), low = swizzledOperand(wAt(stage) + C::BN * L::BK);
    float products[L::tiles][4];
    wgmmaFence();
#pragma unroll
    for (int kk = 0; kk < 4; kk++) {
      wgmmaTf32(products, a[kk].low, high + 2 * kk, kk > 0);
      wgmmaTf32(products, a[kk].high, low + 2 * kk, true);
      wgmmaTf32(products, a[kk].high, high + 2 * kk, true);
    }
    wgmmaCommit();
    wgmmaWait<0>();
    if (threadIdx.x % 32 == 0)
      barriers.empty[stage].arrive();
#pragma unroll
    for (int j = 0; j < L::tiles; j++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        acc[j][e] += products[j][e];
  }
};

#endif

template <typename C, typename Epilogue>
__device__ __forceinline__ void linearTf32Wgmma(const TensorMap &xMap, const TensorMap &wMap,
                                                typename C::Y *y, Sizes sizes, TileIndex index,
                                                void *dynamicShared, const Epilogue &epilogue) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const int m = sizes.m, n = sizes.n, k = sizes.k;
  const int tileM = index.m, tileN = index.n, split = index.split;
  using Block = LinearTf32WgmmaBlock<C, Epilogue>;
  __shared__ typename Block::Barriers barriers;
  Block roles({xMap, wMap, y, m, n, k, tileM, tileN, split, dynamicShared, epilogue}, barriers);
  roles.run();
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c

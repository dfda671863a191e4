// linear for many rows with one scale each, int8 operands, sm_90a alone:
// Y[M,N] = epilogue(scales * (X[M,K] * W[N,K]^T))
//
// A block keeps all of its 128 rows of X in shared memory and takes tiles of BN columns one after
// the other, so that of a product of 4096 rows only the weights go to an SM more than once. Two
// warpgroups take turns at the tiles (int8_turns.cuh), with exact int32 accumulators in registers.
// A thread has TMA fill a ring of Stages k-tiles of W, 128 columns of K each. K is at most 2^17, so
// that no accumulator overflows.
//
// Config: Y (float, __half or signed char), N, K (a multiple of 16), BN (at most 144, which wgmma
// lists and which divides N), Stages, RowScale, YGroup, Gelu.
// Kernel: xMap X i8[M,K] in boxes of 128 rows, wMap W i8[N,K] in boxes of BN rows, y Y[M,N], m,
// with RowScale xScale f32[M], with YGroup yScale f32[M,N/YGroup], then the operands of the
// epilogue. Grid: (ceil(M / 128), parts), of which each takes its share of the tiles; block:
// LinearInt8Stationary<C>::threads; dynamic shared: LinearInt8Stationary<C>::sharedBytes. Bytes:
// M K + N K + sizeof(Y) M N + scales and epilogue operands; operations: 2 M N K.
#pragma once

#include "templates/linear/parts/int8_turns.cuh"
#include "templates/linear/parts/operands.cuh"

namespace gpt2c {

template <typename C> struct LinearInt8Stationary : Int8Turns<C> {
  using Base = Int8Turns<C>;
  static constexpr int kTiles = ceilDiv(C::K, Base::BK);
  static constexpr int xTileBytes = Base::BM * Base::BK, xBytes = kTiles * xTileBytes; // of X
  static constexpr int stageBytes = C::BN * Base::BK;
  // K-tiles begin at 1 KiB.
  static constexpr int sharedBytes = xBytes + C::Stages * stageBytes + Base::storeBytes + 1024;
  static_assert(C::BN <= 144 && C::Stages >= 2);
};

namespace tile {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// A block's roles: a producer of the ring, a warp that stages operands, and two consumers.
template <typename C, typename Epilogue, typename Given>
struct LinearInt8StationaryBlock : Int8TurnsBlock<C, Epilogue, Given> {
  using L = LinearInt8Stationary<C>;
  using Base = Int8TurnsBlock<C, Epilogue, Given>;
  using typename Base::Products;
  struct Ring {
    Barrier *full, *empty, *xFull;
  };
  static constexpr int tilesN = C::N / C::BN;

  const TensorMap &xMap, &wMap;
  const Ring ring;
  i8 *const xs, *const ws;
  const int tileM, group, warp, first, tiles; // `tiles` from `first` on are this block's

  /// `part` of `parts` of the tiles of the rows of tileM.
  __device__ __forceinline__ LinearInt8StationaryBlock(const typename Base::Params &p,
                                                       const typename Base::Barriers &barriers,
                                                       typename Base::Columns &columns,
                                                       const TensorMap &xMap, const TensorMap &wMap,
                                                       const Ring &ring, int tileM, int part,
                                                       int parts, void *dynamicShared)
      : Base(p, barriers, columns), xMap(xMap), wMap(wMap), ring(ring),
        xs(reinterpret_cast<i8 *>(alignedKTiles(dynamicShared))), ws(xs + L::xBytes), tileM(tileM),
        // The compiler has to see that a warp agrees on its role, or it waits after every wgmma.
        group(__shfl_sync(fullWarp, threadIdx.x / 128, 0)), warp(threadIdx.x / 32),
        first(tilesN * part / parts), tiles(tilesN * (part + 1) / parts - first) {}

  __device__ __forceinline__ void run() {
    if (threadIdx.x == 0) {
      for (int s = 0; s < C::Stages; s++) {
        ring.full[s].init(1);
        ring.empty[s].init(4);
      }
      for (int s = 0; s < L::kTiles; s++)
        ring.xFull[s].init(1);
      Base::barriers.init();
      fenceBarrierInit();
    }
    __syncthreads();
    if (group == 2) {
      releaseRegisters<24>();
      if (threadIdx.x == 256)
        produce();
      else if (warp == 9)
        for (int tile = 0; tile < tiles; tile++)
          Base::stageColumns(tile, (first + tile) * C::BN);
    } else {
      claimRegisters<240>();
      consume();
    }
  }

  __device__ __forceinline__ void produce() {
    constexpr int ahead = minInt(C::Stages, L::kTiles);
    if (tiles > 0)
      for (int kTile = 0; kTile < ahead; kTile++)
        loadW(kTile, 0, kTile);
    waitForPredecessor();
    releaseSuccessor();
    for (int kTile = 0; kTile < L::kTiles; kTile++) {
      ring.xFull[kTile].expect(L::xTileBytes);
      copyBox(xs + kTile * L::xTileBytes, xMap, tileM * L::BM, kTile * L::BK / 2,
              ring.xFull[kTile]);
    }
    int stage = ahead % C::Stages, round = ahead / C::Stages;
    for (int tile = 0, kTile = ahead; tile < tiles; tile++, kTile = 0)
      for (; kTile < L::kTiles; kTile++) {
        if (round > 0)
          ring.empty[stage].wait((round - 1) % 2);
        loadW(stage, tile, kTile);
        if (++stage == C::Stages)
          stage = 0, round++;
      }
  }
  /// Maps count in halves.
  __device__ __forceinline__ void loadW(int stage, int tile, int kTile) {
    ring.full[stage].expect(L::stageBytes);
    copyBox(ws + stage * L::stageBytes, wMap, (first + tile) * C::BN, kTile * L::BK / 2,
            ring.full[stage]);
  }

  __device__ __forceinline__ void consume() {
    waitForPredecessor();
    const int row0 = tileM * L::BM + warp % 4 * 16;
    typename Base::Scales scale;
    Base::loadScales(scale, row0);
    const unsigned emptyAt = keptAddress(ring.empty), fullAt = keptAddress(ring.full);
    const u64 x = swizzledOperand(keptAddress(xs)), w = swizzledOperand(keptAddress(ws));
    for (int tile = group; tile < tiles; tile += 2) {
      Products products;
      Base::waitForTurn(tile);
      multiply(products, tile, emptyAt, fullAt, x, w);
      Base::finish(products, scale, tile, row0, (first + tile) * C::BN,
                   ws + C::Stages * L::stageBytes + warp * halvesBytes);
    }
  }
  /// Addresses of barriers and operands of the first stage and k-tile.
  __device__ __forceinline__ void multiply(Products &products, int tile, unsigned emptyAt,
                                           unsigned fullAt, u64 x, u64 w) {
    auto handBack = [&](int s) {
      if (threadIdx.x % 32 == 0)
        Barrier::arriveAt(emptyAt + s * (int)sizeof(Barrier));
    };
    // Its k-tiles follow those of the tile before, which have arrived when the turn comes.
    int stage = tile * L::kTiles % C::Stages, parity = tile * L::kTiles / C::Stages % 2, before = 0;
#pragma unroll 1 // more would need more registers than wgmma leaves
    for (int kTile = 0; kTile < L::kTiles; kTile++) {
      if (tile == group)
        ring.xFull[kTile].wait(0);
      Barrier::waitAt(fullAt + stage * (int)sizeof(Barrier), parity);
      const u64 a = x + kTile * (L::xTileBytes / 16);
      if (kTile == L::kTiles - 1)
        Base::passTurn(tile);
      multiplyKTile(products[0], products[1], a, a + 64 * L::BK / 16,
                    w + stage * (L::stageBytes / 16), kTile > 0);
      wgmmaWait<1>();
      if (kTile > 0)
        handBack(before);
      before = stage;
      if (++stage == C::Stages)
        stage = 0, parity ^= 1;
    }
    wgmmaWait<0>();
    handBack(before);
  }
};

#endif

template <typename C, typename Epilogue, typename Given = quantised::AsTheyAre>
__device__ __forceinline__ void
linearInt8Stationary(const TensorMap &xMap, const TensorMap &wMap, typename C::Y *y, int m,
                     GroupScales scales, TileRow row, void *dynamicShared, const Epilogue &epilogue,
                     const Given &given = {}) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const float *const xScale = scales.x;
  float *const yScale = scales.y;
  using Block = LinearInt8StationaryBlock<C, Epilogue, Given>;
  __shared__ Barrier full[C::Stages], empty[C::Stages], xFull[LinearInt8Stationary<C>::kTiles];
  __shared__ Barrier staged[2], used[2], turn[2];
  __shared__ alignas(16) typename Block::Columns columns;
  Block roles({y, m, xScale, yScale, epilogue, given}, {staged, used, turn}, columns, xMap, wMap,
              {full, empty, xFull}, row.tileM, row.part, row.parts, dynamicShared);
  roles.run();
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c

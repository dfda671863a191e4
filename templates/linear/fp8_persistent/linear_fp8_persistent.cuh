// linear for many rows, fp8 operands, sm_90a alone: Y[M,N] = epilogue(scales * (X[M,K] * W[N,K]^T))
//
// A block takes tiles of 128 x BN one after the other, every gridDim.x-th, row by row: blocks that
// run together read the same rows of X, and all of W stays in L2. Two warpgroups have 64 rows of
// each tile, with sums that leave the tensor cores' registers as in linear_int8_tma: while one ends
// its rows, the other may still multiply. A thread has TMA fill a ring of Stages k-tiles of both
// operands, 128 columns of K each, ahead over the ends of tiles.
//
// Scales of X are of rows (RowScale), of XGroup 64 or 128 elements of K, which wait in shared
// memory, or a matter of the epilogue, as all others are. YGroup 64 or 128: Y is quantised
// (linear_store_quantised.cuh), one scale for each YGroup columns of a row; with Gelu (and XGroup
// 0) behind gelu, both in fp16.
//
// Config: X (Fp8), Y (of floats, or Fp8), N, K (a multiple of 16, and of XGroup), BN (a multiple of
// 16 that wgmma lists, as its half where it is over 96, and which divides N), Stages, XGroup,
// RowScale, YGroup, Gelu; BM 128, SplitK 1, Residual false, for LinearInt8TmaGroups.
// Kernel: xMap X[M,K] in boxes of 128 rows, wMap W X[N,K] in boxes of BN rows, y Y[M,N], m, with
// XGroup or RowScale xScale f32[M,K/XGroup] or f32[M], with YGroup yScale f32[M,N/YGroup], then the
// operands of the epilogue. Grid: up to ceil(M / 128) * N / BN, one block for each SM; block: 384;
// dynamic shared: LinearFp8Persistent<C>::sharedBytes. Bytes: M K + N K + sizeof(Y) M N + scales
// and epilogue operands; operations: 2 M N K.
#pragma once

#include "templates/linear/int8_tma/linear_int8_tma_groups.cuh"
#include "templates/linear/parts/linear_store.cuh"
#include "templates/linear/parts/linear_store_halves.cuh"
#include "templates/linear/parts/linear_store_quantised.cuh"
#include "templates/linear/parts/operands.cuh"

namespace gpt2c {

/// Rows of Y leave in lines.
template <typename Y> constexpr bool leavesInLines = false;
template <> constexpr bool leavesInLines<__half> = true;

template <typename C> struct LinearFp8Persistent {
  using L = LinearInt8Tma<C>;
  static constexpr int threads = L::threads;
  static constexpr int kTiles = ceilDiv(C::K, L::BK), tilesN = C::N / C::BN;
  static constexpr int ringBytes = C::Stages * L::stageBytes;
  static constexpr int scaleBytes = C::BM * L::scales * 4;
  static constexpr int sharedBytes =
      ringBytes + scaleBytes + (leavesInLines<typename C::Y> ? 8 * tile::halvesBytes : 0) + 1024;
  static_assert(C::BM == 128 && C::SplitK == 1 && !C::Residual && L::unit > 0 && L::whole);
  static_assert(C::Stages >= 2 && sizeof(typename C::X) == 1);
};

namespace tile {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// A block's roles: a producer of the ring, and two consumers.
template <typename C, typename Epilogue, typename Given> struct LinearFp8PersistentBlock {
  using P = LinearFp8Persistent<C>;
  using L = typename P::L;
  using Y = typename C::Y;
  using Ring = KTileRing<C::BM, C::BN, C::Stages, 8>;
  /// Of each consumer.
  using Columns = float[2][maxInt(1, Epilogue::columnOperands)][C::BN];

  const TensorMap &xMap, &wMap;
  Y *y;
  int m;
  GroupScales scales;
  Turn turn;
  const Epilogue &epilogue;
  const Given &given;

  // Shared memory.
  Ring &ring;
  Columns &columns;
  char *shared;

  int tiles, group, warp;

  __device__ __forceinline__ void run() {
    shared = reinterpret_cast<char *>(alignedKTiles(shared));
    tiles = ceilDiv(m, C::BM) * P::tilesN;
    // The compiler has to see that a warp agrees on its role, or it waits after every wgmma.
    group = __shfl_sync(fullWarp, threadIdx.x / 128, 0);
    warp = threadIdx.x / 32;
    if (threadIdx.x == 0)
      ring.init();
    __syncthreads();
    if (group == 2) {
      releaseRegisters<24>();
      if (threadIdx.x == L::consumers)
        produce();
    } else {
      claimRegisters<240>();
      consume();
    }
  }
  static __device__ __forceinline__ int firstRow(int tile) { return tile / P::tilesN * C::BM; }
  static __device__ __forceinline__ int firstColumn(int tile) { return tile % P::tilesN * C::BN; }

  __device__ __forceinline__ void produce() {
    constexpr int ahead = minInt(C::Stages, P::kTiles);
#pragma unroll 1
    for (int kTile = 0; kTile < ahead; kTile++)
      loadW(kTile, firstColumn(turn.block), kTile);
    waitForPredecessor();
    releaseSuccessor();
#pragma unroll 1
    for (int kTile = 0; kTile < ahead; kTile++)
      loadX(kTile, firstRow(turn.block), kTile);
    int stage = ahead % C::Stages, round = ahead / C::Stages;
#pragma unroll 1
    for (int tile = turn.block, kTile = ahead; tile < tiles; tile += turn.blocks, kTile = 0)
#pragma unroll 1
      for (; kTile < P::kTiles; kTile++) {
        if (round > 0)
          ring.empty[stage].wait((round - 1) % 2);
        loadW(stage, firstColumn(tile), kTile);
        loadX(stage, firstRow(tile), kTile);
        if (++stage == C::Stages)
          stage = 0, round++;
      }
  }
  /// Maps count in halves.
  __device__ __forceinline__ void loadX(int stage, int row, int kTile) {
    ring.loadX(shared, stage, xMap, row, kTile * L::BK / 2);
  }
  __device__ __forceinline__ void loadW(int stage, int column, int kTile) {
    ring.loadW(shared, stage, wMap, column, kTile * L::BK / 2);
  }

  __device__ __forceinline__ void consume() {
    waitForPredecessor();
    const typename Ring::Consumer consumer(ring, shared, group * 64);
    int stage = 0, parity = 0;
    stageScales(turn.block);
#pragma unroll 1
    for (int tile = turn.block; tile < tiles; tile += turn.blocks) {
      const int row = rowOfGroup(tile), column = firstColumn(tile);
      meet(); // the tile before has been ended by columns that lie there
      Epilogue end = epilogue;
      end.stageColumns(columns[group], column, C::N, threadIdx.x % 128, 128);
      copyAsyncCommit();
      float acc[1][L::tiles][4] = {}, scale[2];
#pragma unroll
      for (int h = 0; h < 2; h++)
        scale[h] = C::RowScale ? scales.x[rowOf(row, h)] : 1.0f;
      if constexpr (C::XGroup > 0)
        waitForCopies<1>();
      multiply(consumer, acc[0], stage, parity);
      waitForCopies<0>();
      if (tile + turn.blocks < tiles)
        stageScales(tile + turn.blocks);
      finish(acc, scale, end, row + warp % 4 * 16, column);
    }
  }
  __device__ __forceinline__ int rowOfGroup(int tile) const { return firstRow(tile) + group * 64; }
  /// This lane's rows, h = 0 and 1.
  __device__ __forceinline__ int rowOf(int row, int h) const {
    return min(row + warp % 4 * 16 + h * 8 + (int)threadIdx.x % 32 / 4, m - 1);
  }
  __device__ __forceinline__ void meet() const {
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
  }
  __device__ __forceinline__ float *scalesOfGroup() const {
    return reinterpret_cast<float *>(shared + P::ringBytes) + group * 64 * L::scales;
  }

  /// Brings the scales of a tile's groups.
  __device__ __forceinline__ void stageScales(int tile) {
    if constexpr (C::XGroup > 0) {
      constexpr int each = L::scales % 4 == 0 ? 4 : 1; // that are copied at once
      float *const to = scalesOfGroup();
#pragma unroll 2
      for (int i = threadIdx.x % 128 * each; i < 64 * L::scales; i += 128 * each) {
        const i64 at = (i64)rowOfGroup(tile) * L::scales + i, last = (i64)m * L::scales - each,
                  from = at < last ? at : last;
        if constexpr (each == 4)
          copyAsync16(to + i, scales.x + from, true);
        else
          copyAsync4(to + i, scales.x + from);
      }
      copyAsyncCommit();
    }
  }
  /// Of this warpgroup, but for the `Later` last groups of copies.
  template <int Later> __device__ __forceinline__ void waitForCopies() const {
    copyAsyncWait<Later>();
    meet();
  }

  /// From the k-tile at `stage` on, which is the next tile's then.
  template <typename Consumer>
  __device__ __forceinline__ void multiply(const Consumer &consumer, float (&acc)[L::tiles][4],
                                           int &stage, int &parity) {
    using Groups = LinearInt8TmaGroups<C, Consumer>;
    // As in linear_int8_tma.
    int units = P::kTiles * Groups::parts;
    asm volatile("" : "+r"(units));
    const float *at = scalesOfGroup() + (warp % 4 * 16 + (int)threadIdx.x % 32 / 4) * L::scales;
    Groups groups(consumer, acc, at, 0, units);
    groups.stage = stage;
    groups.parity = parity;
    groups.nextScale(0);
    consumer.wait(stage, parity);
    if constexpr (L::halves)
      groups.multiplyHalves();
    else
      groups.multiplyWhole();
    consumer.handBack(groups.stage);
    stage = groups.stage + 1;
    parity = groups.parity;
    if (stage == C::Stages)
      stage = 0, parity ^= 1;
  }

  __device__ __forceinline__ void finish(float (&acc)[1][L::tiles][4], const float (&scale)[2],
                                         const Epilogue &end, int row, int column) {
    if constexpr (C::Gelu) {
      storeGeluQuantised<C::YGroup>(acc[0], scale, y, scales.y, m, C::N, row, column, end);
    } else if constexpr (leavesInLines<Y>) {
      storeHalves(acc[0], scale, y, m, C::N, row, column,
                  shared + P::ringBytes + P::scaleBytes + warp * halvesBytes, end);
    } else {
      if constexpr (C::RowScale)
        scaleSums(acc[0], acc[0], scale);
      if constexpr (C::YGroup > 0)
        storeTileQuantised<C::YGroup>(acc, y, scales.y, m, C::N, row, column, end);
      else if constexpr (Operand<Y>::scaled)
        storeTileBytes<true>(acc, y, m, C::N, row, column, end);
      else
        storeTile<1, 12, true>(acc, y, m, C::N, row, column, nullptr, nullptr, 0, end);
    }
  }
};

#endif

template <typename C, typename Epilogue, typename Given = quantised::AsTheyAre>
__device__ __forceinline__ void
linearFp8Persistent(const TensorMap &xMap, const TensorMap &wMap, typename C::Y *y, int m,
                    GroupScales scales, Turn turn, void *dynamicShared, const Epilogue &epilogue,
                    const Given &given = {}) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Block = LinearFp8PersistentBlock<C, Epilogue, Given>;
  __shared__ typename Block::Ring ring;
  __shared__ alignas(16) typename Block::Columns columns;
  Block block = {xMap,
                 wMap,
                 y,
                 m,
                 scales,
                 turn,
                 epilogue,
                 given,
                 ring,
                 columns,
                 static_cast<char *>(dynamicShared)};
  block.run();
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c

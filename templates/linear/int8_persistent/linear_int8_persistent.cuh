// linear for many rows with one scale each and a long K, int8 operands, sm_90a alone:
// Y[M,N] = epilogue(scales * (X[M,K] * W[N,K]^T))
//
// A block takes tiles of 128 x BN one after the other, every gridDim.x-th, row by row: blocks that
// run together read the same rows of X, and all of W stays in L2. Two warpgroups take turns at the
// tiles (int8_turns.cuh), with exact int32 accumulators in registers. A thread has TMA fill a ring
// of Stages k-tiles of both operands, 128 columns of K each, ahead over the ends of tiles. Rows of
// a short K stay in shared memory instead: linear_int8_stationary.cuh. K is at most 2^17, so that
// no accumulator overflows.
//
// Config: Y (float, __half or signed char), N, K (a multiple of 16), BN (which wgmma lists and
// which divides N; at most 192), Stages, RowScale, YGroup, Gelu.
// Kernel: xMap X i8[M,K] in boxes of 128 rows, wMap W i8[N,K] in boxes of BN rows, y Y[M,N], m,
// with RowScale xScale f32[M], with YGroup yScale f32[M,N/YGroup], then the operands of the
// epilogue. Grid: up to ceil(M / 128) * N / BN, one block for each SM; block:
// LinearInt8Persistent<C>::threads; dynamic shared: LinearInt8Persistent<C>::sharedBytes. Bytes:
// M K + N K + sizeof(Y) M N + scales and epilogue operands; operations: 2 M N K.
#pragma once

#include "templates/linear/parts/int8_turns.cuh"
#include "templates/linear/parts/operands.cuh"

namespace gpt2c {

template <typename C> struct LinearInt8Persistent : Int8Turns<C> {
  using Base = Int8Turns<C>;
  static constexpr int kTiles = ceilDiv(C::K, Base::BK), tilesN = C::N / C::BN;
  static constexpr int ringBytes = C::Stages * (Base::BM + C::BN) * Base::BK;
  static constexpr int sharedBytes = ringBytes + Base::storeBytes + 1024; // k-tiles begin at 1 KiB
  static_assert(C::Stages >= 2);
};

namespace tile {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// A block's roles: a producer of the ring, a warp that stages operands, and two consumers.
template <typename C, typename Epilogue, typename Given>
struct LinearInt8PersistentBlock : Int8TurnsBlock<C, Epilogue, Given> {
  using L = LinearInt8Persistent<C>;
  using Base = Int8TurnsBlock<C, Epilogue, Given>;
  using typename Base::Products;
  using Ring = KTileRing<L::BM, C::BN, C::Stages, 4>;

  const TensorMap &xMap, &wMap;
  Ring &ring;
  i8 *const shared;
  const int block, blocks, tiles, group, warp;

  __device__ __forceinline__ LinearInt8PersistentBlock(const typename Base::Params &p,
                                                       const typename Base::Barriers &barriers,
                                                       typename Base::Columns &columns,
                                                       const TensorMap &xMap, const TensorMap &wMap,
                                                       Ring &ring, int block, int blocks,
                                                       void *dynamicShared)
      : Base(p, barriers, columns), xMap(xMap), wMap(wMap), ring(ring),
        shared(reinterpret_cast<i8 *>(alignedKTiles(dynamicShared))), block(block), blocks(blocks),
        tiles(ceilDiv(p.m, L::BM) * L::tilesN),
        // The compiler has to see that a warp agrees on its role, or it waits after every wgmma.
        group(__shfl_sync(fullWarp, threadIdx.x / 128, 0)), warp(threadIdx.x / 32) {}

  __device__ __forceinline__ void run() {
    if (threadIdx.x == 0) {
      Base::barriers.init();
      ring.init();
    }
    __syncthreads();
    if (group == 2) {
      releaseRegisters<24>();
      if (threadIdx.x == 256)
        produce();
      else if (warp == 9)
        for (int turn = 0, tile = block; tile < tiles; turn++, tile += blocks)
          Base::stageColumns(turn, firstColumn(tile));
    } else {
      claimRegisters<240>();
      consume();
    }
  }
  static __device__ __forceinline__ int firstRow(int tile) { return tile / L::tilesN * L::BM; }
  static __device__ __forceinline__ int firstColumn(int tile) { return tile % L::tilesN * C::BN; }

  __device__ __forceinline__ void produce() {
    constexpr int ahead = minInt(C::Stages, L::kTiles);
    for (int kTile = 0; kTile < ahead; kTile++)
      loadW(kTile, firstColumn(block), kTile);
    waitForPredecessor();
    releaseSuccessor();
    for (int kTile = 0; kTile < ahead; kTile++)
      loadX(kTile, firstRow(block), kTile);
    int stage = ahead % C::Stages, round = ahead / C::Stages;
    for (int tile = block, kTile = ahead; tile < tiles; tile += blocks, kTile = 0)
      for (; kTile < L::kTiles; kTile++) {
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
    const typename Ring::Consumer consumer(ring, shared, 0);
    for (int turn = group, tile = block + group * blocks; tile < tiles;
         turn += 2, tile += 2 * blocks) {
      Products products;
      typename Base::Scales scale;
      const int row0 = firstRow(tile) + warp % 4 * 16;
      Base::loadScales(scale, row0);
      Base::waitForTurn(turn);
      multiply(products, turn, consumer);
      Base::finish(products, scale, turn, row0, firstColumn(tile),
                   shared + L::ringBytes + warp * halvesBytes);
    }
  }
  __device__ __forceinline__ void multiply(Products &products, int turn,
                                           const typename Ring::Consumer &consumer) {
    // Its k-tiles follow those of the turn before, which have arrived when the turn comes.
    int stage = turn * L::kTiles % C::Stages, parity = turn * L::kTiles / C::Stages % 2, before = 0;
#pragma unroll 1 // more would need more registers than wgmma leaves
    for (int kTile = 0; kTile < L::kTiles; kTile++) {
      consumer.wait(stage, parity);
      if (kTile == L::kTiles - 1)
        Base::passTurn(turn);
      const u64 x = consumer.xAt(stage);
      multiplyKTile(products[0], products[1], x, x + 64 * L::BK / 16, consumer.wAt(stage),
                    kTile > 0);
      wgmmaWait<1>();
      if (kTile > 0)
        consumer.handBack(before);
      before = stage;
      if (++stage == C::Stages)
        stage = 0, parity ^= 1;
    }
    wgmmaWait<0>();
    consumer.handBack(before);
  }
};

#endif

template <typename C, typename Epilogue, typename Given = quantised::AsTheyAre>
__device__ __forceinline__ void
linearInt8Persistent(const TensorMap &xMap, const TensorMap &wMap, typename C::Y *y, int m,
                     GroupScales scales, Turn turn, void *dynamicShared, const Epilogue &epilogue,
                     const Given &given = {}) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const float *const xScale = scales.x;
  float *const yScale = scales.y;
  const int block = turn.block, blocks = turn.blocks;
  using Block = LinearInt8PersistentBlock<C, Epilogue, Given>;
  __shared__ typename Block::Ring ring;
  __shared__ Barrier staged[2], used[2], turns[2];
  __shared__ alignas(16) typename Block::Columns columns;
  Block roles({y, m, xScale, yScale, epilogue, given}, {staged, used, turns}, columns, xMap, wMap,
              ring, block, blocks, dynamicShared);
  roles.run();
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c

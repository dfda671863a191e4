// linear for many rows, fp16 operands, sm_90a alone: Y[M,N] = epilogue(X[M,K] * W[N,K]^T)
//
// A block takes tiles of 128 x BN one after the other, every gridDim.x-th. Two warpgroups take
// turns: while one ends its tile (epilogue and stores), the other multiplies the next, so the
// tensor cores do not stand still between tiles. A thread of a third has the copy engine fill a
// ring of Stages slabs of 64 columns of K, ahead over the ends of tiles; the order of the slabs is
// what makes the warpgroups take turns. Norm and statistics are as in linear_tma.cuh.
//
// Config: Y (float or __half), BN (a multiple of 16 that wgmma lists, at most 192), Stages.
// Kernel: xMap X f16[M,K] in boxes of 128 rows, wMap W f16[N,K] in boxes of BN rows, y Y[M,N], m,
// n, k (a multiple of 8), then the operands of the epilogue. Grid: up to ceil(M / 128) * ceil(N /
// BN), one block for each multiprocessor; block: LinearTmaPersistent<C>::threads; dynamic shared:
// LinearTmaPersistent<C>::sharedBytes. Bytes: 2 (M K
// + N K) + sizeof(Y) M N + epilogue operands; flops: 2 M N K.
#pragma once

#include "linear_store.cuh"
#include "tma_pipeline.cuh"
#include "wgmma.cuh"

namespace gpt2c {

template <typename C> struct LinearTmaPersistent {
  static constexpr int BM = 128, BK = 64;
  static constexpr bool whole = C::N % C::BN == 0;
  static constexpr int threads = 384;
  static constexpr int sharedBytes =
      C::Stages * (BM + C::BN) * BK * 2 + 1024; // slabs begin at 1 KiB
  static_assert(C::BN % 16 == 0 && C::BN <= 192 && C::Stages >= 2);
};

namespace tile {

template <typename C, typename Epilogue, typename Norm = NoNorm, typename Statistics = NoStatistics>
__device__ __forceinline__ void
linearTmaPersistent(const TensorMap &xMap, const TensorMap &wMap, typename C::Y *y, int m,
                    int block, int blocks, void *dynamicShared, const Epilogue &epilogue,
                    const Norm &norm = {}, const Statistics &statistics = {}) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using L = LinearTmaPersistent<C>;
  using Ring = SlabRing<L::BM, C::BN, C::Stages, 4>;
  __shared__ Ring ring;
  __shared__ Barrier done[2];
  constexpr int columnOperands = Epilogue::columnOperands + Norm::columnOperands;
  __shared__ alignas(16) float columns[2][maxInt(1, columnOperands)][C::BN];
  __half *shared = alignedSlabs(dynamicShared);
  // The compiler has to see that a warp agrees on its role, or it waits after every wgmma.
  const int group = __shfl_sync(fullWarp, threadIdx.x / 128, 0), warp = threadIdx.x / 32 % 4,
            lane = threadIdx.x % 32;
  constexpr int slabs = (C::K + L::BK - 1) / L::BK;
  // Bands of rows, each of all columns, which L2 holds; in a band one column of tiles after the
  // other.
  constexpr int tilesN = ceilDiv(C::N, C::BN), band = 32;
  const int tilesM = ceilDiv(m, L::BM), tiles = tilesM * tilesN;
  auto bandOf = [&](int tile) { return tile / (band * tilesN) * band; };
  auto firstRow = [&](int tile) {
    const int first = bandOf(tile), height = min(band, tilesM - first);
    return (first + tile % (band * tilesN) % height) * L::BM;
  };
  auto firstColumn = [&](int tile) {
    const int height = min(band, tilesM - bandOf(tile));
    return tile % (band * tilesN) / height * C::BN;
  };
  if (threadIdx.x == 0) {
    ring.init();
    done[0].init(4);
    done[1].init(4);
    fenceBarrierInit();
  }
  __syncthreads();

  if (group == 2) {
    releaseRegisters<24>();
    if (threadIdx.x % 128 == 0) {
      auto loadX = [&](int stage, int row, int slab) {
        ring.loadX(shared, stage, xMap, row, slab * L::BK);
      };
      auto loadW = [&](int stage, int column, int slab) {
        ring.loadW(shared, stage, wMap, column, slab * L::BK);
      };
      constexpr int first = minInt(C::Stages, slabs);
      for (int slab = 0; slab < first; slab++)
        loadW(slab, firstColumn(block), slab);
      waitForPredecessor();
      releaseSuccessor();
      for (int slab = 0; slab < first; slab++)
        loadX(slab, firstRow(block), slab);
      int stage = first % C::Stages, round = first / C::Stages;
      for (int tile = block, slab = first; tile < tiles; tile += blocks, slab = 0) {
        const int row = firstRow(tile), column = firstColumn(tile);
        for (; slab < slabs; slab++) {
          if (round > 0)
            ring.empty[stage].wait((round - 1) % 2);
          loadW(stage, column, slab);
          loadX(stage, row, slab);
          if (++stage == C::Stages)
            stage = 0, round++;
        }
      }
    }
  } else {
    claimRegisters<240>();
    const typename Ring::Consumer consumer(ring, shared, 0);
    waitForPredecessor();
    for (int turn = group, tile = block + group * blocks; tile < tiles;
         turn += 2, tile += 2 * blocks) {
      float acc[2][1][C::BN / 8][4];
      const int row0 = firstRow(tile) + warp * 16, col0 = firstColumn(tile);
      // What belongs to columns waits in shared memory for the end.
      auto groupBarrier = [&] { asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory"); };
      Epilogue end = epilogue;
      Norm columnNorm = norm;
      if constexpr (columnOperands > 0)
        groupBarrier(); // nobody reads those of the tile before
      end.stageColumns(columns[group], col0, C::N, threadIdx.x % 128, 128);
      columnNorm.stageColumns(columns[group] + Epilogue::columnOperands, col0, C::N,
                              threadIdx.x % 128, 128);
      copyAsyncCommit();
      typename Norm::Row rows[2][1][2];
#pragma unroll
      for (int i = 0; i < 4; i++)
        rows[i / 2][0][i % 2] = norm.row(norm.load(row0 + i / 2 * 64 + lane / 4 + i % 2 * 8, m));
      // A parity tells a phase from the next alone: no waiting for slabs before the other group has
      // seen its last.
      if (turn > 0)
        done[1 - group].wait((turn - 1) / 2 % 2);
      auto multiply = [&](int slab, int stage, int parity, int before) {
        consumer.wait(stage, parity);
        const u64 x = consumer.xAt(stage);
        multiplySlab(acc[0][0], acc[1][0], x, x + 64 * 128 / 16, consumer.wAt(stage), slab > 0);
        wgmmaWait<1>();
        if (slab > 0)
          consumer.handBack(before);
      };
      int stage = 0;
      if constexpr (slabs % C::Stages == 0) {
        // Stages by constants, as in linear_tma.cuh.
        constexpr int rounds = slabs / C::Stages;
#pragma unroll 1
        for (int round = 0; round < rounds; round++)
#pragma unroll
          for (int s = 0; s < C::Stages; s++)
            multiply(round * C::Stages + s, s, (turn * rounds + round) % 2,
                     (s + C::Stages - 1) % C::Stages);
      } else {
        stage = turn * slabs % C::Stages;
        int parity = turn * slabs / C::Stages % 2, before = stage;
#pragma unroll 1 // more would need more registers than wgmma leaves
        for (int slab = 0; slab < slabs; slab++) {
          multiply(slab, stage, parity, before);
          before = stage;
          if (++stage == C::Stages)
            stage = 0, parity ^= 1;
        }
      }
      if (threadIdx.x % 32 == 0)
        done[group].arrive();
      wgmmaWait<0>();
      consumer.handBack((stage + C::Stages - 1) % C::Stages);
      copyAsyncWait<0>();
      if constexpr (columnOperands > 0)
        groupBarrier();
#pragma unroll
      for (int i = 0; i < 2; i++) {
        storeTile<1, (C::BN > 144 ? 1 : 9), L::whole>(acc[i], y, m, C::N, row0 + i * 64, col0,
                                                      nullptr, nullptr, 0, end, columnNorm, rows[i],
                                                      statistics);
      }
    }
  }
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c

// linear for many rows, fp16 operands, sm_90a alone: Y[M,N] = epilogue(X[M,K] * W[N,K]^T)
//
// A block takes tiles of 128 x BN one after the other, every gridDim.x-th, row by row: blocks that
// run together read the same rows of X. Two warpgroups take turns: while one ends its tile
// (epilogue and stores), the other multiplies the next, so the tensor cores do not stand still
// between tiles. A thread of a third has the copy engine fill a ring of Stages slabs of 64 columns
// of K, ahead over the ends of tiles; the order of the slabs is what makes the warpgroups take
// turns. The other warps of the third bring what ends of tiles need to shared memory: operands of
// columns, and of a norm what belongs to rows. Norm and statistics are as in linear_tma.cuh.
//
// With Residual, R[M,N] is added: a tile's part of it comes through the ring ahead of the tile's
// slabs, and the sums begin with it. Otherwise residualMap may be any map.
//
// Config: Y (float or __half), BN (a multiple of 16 that wgmma lists, at most 192), Stages,
// Residual (Y and R in fp16, N and BN multiples of 64, and no norm).
// Kernel: xMap X f16[M,K] in boxes of 128 rows, wMap W f16[N,K] in boxes of BN rows, with Residual
// residualMap R f16[M,N] in boxes of 128 rows, y Y[M,N], m, backwards (1 for the last tile first),
// then the operands of the epilogue, of the norm and of the statistics. K is a multiple of 8.
// Grid: up to ceil(M / 128) * ceil(N / BN), one block for each multiprocessor; block:
// LinearTmaPersistent<C>::threads; dynamic shared: LinearTmaPersistent<C>::sharedBytes. Bytes:
// 2 (M K + N K) + sizeof(Y) M N + epilogue operands; flops: 2 M N K.
#pragma once

#include "templates/linear/parts/linear_store.cuh"
#include "templates/linear/parts/linear_store_lines.cuh"
#include "templates/device/tma_pipeline.cuh"
#include "templates/device/wgmma.cuh"

namespace gpt2c {

template <typename C> struct LinearTmaPersistent {
  static constexpr int BM = 128, BK = 64;
  static constexpr bool whole = C::N % C::BN == 0;
  /// Whether rows leave in lines of 64 columns.
  static constexpr bool lines = sizeof(typename C::Y) == 2 && C::N % 64 == 0 && C::BN % 64 == 0;
  static constexpr int threads = 384;
  static constexpr int slabsBytes = C::Stages * (BM + C::BN) * BK * 2;
  static constexpr int sharedBytes =
      slabsBytes + (lines ? 8 * tile::halvesBytes : 0) + 1024; // slabs begin at 1 KiB
  static_assert(C::BN % 16 == 0 && C::BN <= 192 && C::Stages >= 2 && (lines || !C::Residual));
};

namespace tile {

template <typename C, typename Epilogue, typename Norm = NoNorm, typename Statistics = NoStatistics>
__device__ __forceinline__ void
linearTmaPersistent(const TensorMap &xMap, const TensorMap &wMap, const TensorMap &residualMap,
                    typename C::Y *y, int m, int backwards, int block, int blocks,
                    void *dynamicShared, const Epilogue &epilogue, const Norm &norm = {},
                    const Statistics &statistics = {}) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using L = LinearTmaPersistent<C>;
  using Ring = SlabRing<L::BM, C::BN, C::Stages, 4>;
  constexpr bool hasNorm = Norm::columnOperands > 0;
  constexpr int columnOperands = Epilogue::columnOperands + Norm::columnOperands;
  constexpr int helpers = 96; // threads
  __shared__ Ring ring;
  __shared__ Barrier done[2], staged[2], used[2];
  __shared__ alignas(16) float columns[2][maxInt(1, columnOperands)][C::BN];
  __shared__ typename Norm::Row normRows[2][hasNorm ? L::BM : 1];
  __half *shared = alignedSlabs(dynamicShared);
  // The compiler has to see that a warp agrees on its role, or it waits after every wgmma.
  const int group = __shfl_sync(fullWarp, threadIdx.x / 128, 0), warp = threadIdx.x / 32 % 4,
            lane = threadIdx.x % 32;
  // A tile's slabs in the ring: those of R, each of some boxes of 64 columns, then those of K.
  constexpr int boxBytes = L::BM * 128, boxesOfSlab = Ring::slabBytes / boxBytes;
  constexpr int boxes = C::Residual ? C::BN / 64 : 0, before = ceilDiv(boxes, boxesOfSlab);
  constexpr int slabsOfK = (C::K + L::BK - 1) / L::BK, slabs = before + slabsOfK;
  constexpr int tilesN = ceilDiv(C::N, C::BN);
  const int tiles = ceilDiv(m, L::BM) * tilesN;
  auto place = [&](int tile) { return backwards ? tiles - 1 - tile : tile; };
  auto firstRow = [&](int tile) { return place(tile) / tilesN * L::BM; };
  auto firstColumn = [&](int tile) { return place(tile) % tilesN * C::BN; };
  if (threadIdx.x == 0) {
    ring.init();
    for (int i = 0; i < 2; i++) {
      done[i].init(4);
      staged[i].init(helpers);
      used[i].init(4);
    }
    fenceBarrierInit();
  }
  __syncthreads();

  if (group == 2) {
    releaseRegisters<24>();
    if (threadIdx.x % 128 == 0) {
      auto loadX = [&](int stage, int row, int slab) {
        ring.loadX(shared, stage, xMap, row, (slab - before) * L::BK);
      };
      auto loadW = [&](int stage, int column, int slab) {
        ring.loadW(shared, stage, wMap, column, (slab - before) * L::BK);
      };
      auto loadResidual = [&](int stage, int row, int column, int slab) {
        const int box = slab * boxesOfSlab, count = min(boxesOfSlab, boxes - box);
        ring.full[stage].expect(count * boxBytes);
        for (int i = 0; i < count; i++)
          copyBox(reinterpret_cast<char *>(shared) + stage * Ring::slabBytes + i * boxBytes,
                  residualMap, row, column + (box + i) * 64, ring.full[stage]);
      };
      constexpr int first = minInt(C::Stages, slabs);
      for (int slab = before; slab < first; slab++)
        loadW(slab, firstColumn(block), slab);
      waitForPredecessor();
      releaseSuccessor();
      for (int slab = 0; slab < minInt(before, first); slab++)
        loadResidual(slab, firstRow(block), firstColumn(block), slab);
      for (int slab = before; slab < first; slab++)
        loadX(slab, firstRow(block), slab);
      int stage = first % C::Stages, round = first / C::Stages;
      for (int tile = block, slab = first; tile < tiles; tile += blocks, slab = 0) {
        const int row = firstRow(tile), column = firstColumn(tile);
        for (; slab < slabs; slab++) {
          if (round > 0)
            ring.empty[stage].wait((round - 1) % 2);
          if (slab < before) {
            loadResidual(stage, row, column, slab);
          } else {
            loadW(stage, column, slab);
            loadX(stage, row, slab);
          }
          if (++stage == C::Stages)
            stage = 0, round++;
        }
      }
    } else if (warp > 0 && columnOperands > 0) {
      waitForPredecessor();
      const int thread = threadIdx.x % 128 - 32;
      for (int turn = 0, tile = block; tile < tiles; turn++, tile += blocks) {
        const int to = turn % 2, row0 = firstRow(tile), col0 = firstColumn(tile);
        if (turn > 1)
          used[to].wait((turn / 2 - 1) % 2);
        Epilogue end = epilogue;
        Norm columnNorm = norm;
        end.stageColumns(columns[to], col0, C::N, thread, helpers);
        columnNorm.stageColumns(columns[to] + Epilogue::columnOperands, col0, C::N, thread,
                                helpers);
        copyAsyncCommit();
        if constexpr (hasNorm)
#pragma unroll 1
          for (int row = thread / 4; row - thread / 4 < L::BM; row += helpers / 4) {
            const typename Norm::Row r = norm.row(norm.load(row0 + row, m));
            if (row < L::BM && thread % 4 == 0)
              normRows[to][row] = r;
          }
        copyAsyncWait<0>();
        staged[to].arrive();
      }
    }
  } else {
    claimRegisters<240>();
    const typename Ring::Consumer consumer(ring, shared, 0);
    const unsigned slabsAddress = keptAddress(shared);
    char *buffer = reinterpret_cast<char *>(shared) + L::slabsBytes +
                   (group * 4 + warp) * (L::lines ? halvesBytes : 0);
    for (int turn = group, tile = block + group * blocks; tile < tiles;
         turn += 2, tile += 2 * blocks) {
      float acc[2][1][C::BN / 8][4];
      const int row0 = firstRow(tile) + warp * 16, col0 = firstColumn(tile);
      // A parity tells a phase from the next alone: no waiting for slabs before the other group has
      // seen its last.
      if (turn > 0)
        done[1 - group].wait((turn - 1) / 2 % 2);
      int stage = turn * slabs % C::Stages, parity = turn * slabs / C::Stages % 2;
      auto next = [&] {
        if (++stage == C::Stages)
          stage = 0, parity ^= 1;
      };
      // The other group's last product is still under way.
#pragma unroll
      for (int slab = 0; slab < before; slab++) {
        consumer.wait(stage, parity);
        const unsigned mine =
            slabsAddress + stage * Ring::slabBytes + (warp * 16 + lane % 16) * 128;
#pragma unroll
        for (int box = slab * boxesOfSlab; box < minInt(boxes, (slab + 1) * boxesOfSlab); box++)
#pragma unroll
          for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 8; j += 2) {
              unsigned r[4]; // rows 0 and 8 on of column tile j, and of the next
              loadMatrix4(r, mine + (box - slab * boxesOfSlab) * boxBytes + i * 64 * 128 +
                                 ((j + lane / 16) ^ lane % 8) * 16);
#pragma unroll
              for (int k = 0; k < 4; k++) {
                const float2 f = __half22float2(*reinterpret_cast<const __half2 *>(&r[k]));
                float *sums = &acc[i][0][box * 8 + j + k / 2][k % 2 * 2];
                sums[0] = f.x;
                sums[1] = f.y;
              }
            }
        // What is read into registers may still be on its way, behind the other group's product: the
        // copy engine must not be let in before it is there.
        fenceShared();
        consumer.handBack(stage);
        next();
      }
      auto multiply = [&](int slab, int stage, int parity, int previous) {
        consumer.wait(stage, parity);
        const u64 x = consumer.xAt(stage);
        multiplySlab(acc[0][0], acc[1][0], x, x + 64 * 128 / 16, consumer.wAt(stage),
                     C::Residual || slab > 0);
        wgmmaWait<1>();
        if (slab > 0)
          consumer.handBack(previous);
      };
      if constexpr (slabs % C::Stages == 0 && before == 0) {
        // Stages by constants, as in linear_tma.cuh.
        constexpr int rounds = slabs / C::Stages;
#pragma unroll 1
        for (int round = 0; round < rounds; round++)
#pragma unroll
          for (int s = 0; s < C::Stages; s++)
            multiply(round * C::Stages + s, s, (turn * rounds + round) % 2,
                     (s + C::Stages - 1) % C::Stages);
      } else {
        int previous = stage;
#pragma unroll 1 // more would need more registers than wgmma leaves
        for (int slab = 0; slab < slabsOfK; slab++) {
          multiply(slab, stage, parity, previous);
          previous = stage;
          next();
        }
      }
      if (lane == 0)
        done[group].arrive();
      wgmmaWait<0>();
      consumer.handBack((stage + C::Stages - 1) % C::Stages);
      Epilogue end = epilogue;
      Norm columnNorm = norm;
      // These take the places, and copy nothing.
      end.stageColumns(columns[group], col0, C::N, C::BN, 1);
      columnNorm.stageColumns(columns[group] + Epilogue::columnOperands, col0, C::N, C::BN, 1);
      if constexpr (columnOperands > 0)
        staged[group].wait(turn / 2 % 2);
      typename Norm::Row rows[2][1][2];
      if constexpr (hasNorm)
#pragma unroll
        for (int i = 0; i < 4; i++)
          rows[i / 2][0][i % 2] = normRows[group][warp * 16 + i / 2 * 64 + i % 2 * 8 + lane / 4];
      if constexpr (L::lines) {
        const typename Norm::Row both[2][2] = {{rows[0][0][0], rows[0][0][1]},
                                               {rows[1][0][0], rows[1][0][1]}};
        storeLines<L::whole>(acc, y, m, C::N, row0, col0, buffer, end, columnNorm, both,
                             statistics);
      } else {
#pragma unroll
        for (int i = 0; i < 2; i++)
          storeTile<1, (C::BN > 144 ? 1 : 9), L::whole>(acc[i], y, m, C::N, row0 + i * 64, col0,
                                                        nullptr, nullptr, 0, end, columnNorm,
                                                        rows[i], statistics);
      }
      if constexpr (columnOperands > 0) {
        __syncwarp();
        if (lane == 0)
          used[group].arrive();
      }
    }
  }
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c

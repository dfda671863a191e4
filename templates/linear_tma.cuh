// linear for up to some hundred rows, fp16 operands, sm_90a alone:
// Y[M,N] = epilogue(X[M,K] * W[N,K]^T)
//
// BM x BN of Y per block: BM / 64 warpgroups, each 64 x BN by wgmma.m64nBNk16 with fp32
// accumulators in registers, and a warp of which one thread has the copy engine fill a ring of
// Stages slabs of 64 columns of K. A warpgroup hands a slab back while it multiplies the next.
//
// With SplitK > 1 that many blocks share a tile as a thread block cluster. Their sums meet in
// distributed shared memory, in order of their index; each block ends a share of the columns.
//
// A norm of x may be taken out of the sums, and statistics of Y's rows be left for the next product
// (row_statistics.cuh).
//
// Weights are fetched before the predecessor has ended: the first slabs into shared memory, the
// rest of what the block needs into L2.
//
// Config: Y (float or __half), BM (64 or 128), BN (a multiple of 16 that wgmma lists), Stages,
// SplitK (at most 8, a divisor of BN / 8 and at most ceil(K / 64)).
// Kernel: xMap X f16[M,K] in boxes of BM rows, wMap W f16[N,K] in boxes of BN rows, y Y[M,N], m, n,
// k (a multiple of 8), then the operands of the epilogue, of the norm and of the statistics.
// Grid: (ceil(M / BM), ceil(N / BN), SplitK), clusters of (1, 1, SplitK); block:
// LinearTma<C>::threads; dynamic shared: LinearTma<C>::sharedBytes. Bytes: 2 (M K + N K) +
// sizeof(Y) M N + epilogue operands; flops: 2 M N K.
#pragma once

#include "linear_store.cuh"
#include "tma_pipeline.cuh"
#include "wgmma.cuh"

namespace gpt2c {

template <typename C> struct LinearTma {
  static constexpr int groups = C::BM / 64;
  static constexpr int consumers = 128 * groups;
  static constexpr bool whole = C::N % C::BN == 0;
  static constexpr int threads = consumers + 32;
  static constexpr int BK = 64;
  static constexpr int slabsBytes = C::Stages * (C::BM + C::BN) * BK * 2;
  static constexpr int sharedBytes = slabsBytes + 1024; // slabs begin at 1 KiB
  static constexpr int tiles = C::BN / 8, share = tiles / C::SplitK;
  static_assert(C::BM % 64 == 0 && C::BN % 16 == 0 && C::Stages >= 2);
  static_assert(C::SplitK == 1 || (tiles % C::SplitK == 0 && C::BM * C::BN * 4 <= slabsBytes));
};

namespace tile {

template <typename C, typename Epilogue, typename Norm = NoNorm, typename Statistics = NoStatistics>
__device__ __forceinline__ void linearTma(const TensorMap &xMap, const TensorMap &wMap,
                                          typename C::Y *y, int m, int tileM, int tileN, int split,
                                          void *dynamicShared, Epilogue epilogue, Norm norm = {},
                                          Statistics statistics = {}) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using L = LinearTma<C>;
  using Ring = SlabRing<C::BM, C::BN, C::Stages, L::consumers / 32>;
  __shared__ Ring ring;
  __shared__ alignas(
      16) float columns[maxInt(1, Epilogue::columnOperands + Norm::columnOperands)][C::BN];
  __half *shared = alignedSlabs(dynamicShared);
  // The compiler has to see that a warp agrees on its role, or it waits after every wgmma.
  const int group = __shfl_sync(fullWarp, threadIdx.x / 128, 0), warp = threadIdx.x / 32;
  const int row0 = tileM * C::BM, col0 = tileN * C::BN;
  // Parts of K are equal: what the last has too many are zeros.
  constexpr int slabs = ceilDiv(ceilDiv(C::K, L::BK), C::SplitK);
  const int firstSlab = split * slabs;
  if (threadIdx.x == 0)
    ring.init();
  __syncthreads();

  if (group == L::groups) {
    if (threadIdx.x % 32 == 0) {
      prefetchMap(xMap);
      auto loadX = [&](int slab) {
        ring.loadX(shared, slab % C::Stages, xMap, row0, (firstSlab + slab) * L::BK);
      };
      auto loadW = [&](int slab) {
        ring.loadW(shared, slab % C::Stages, wMap, col0, (firstSlab + slab) * L::BK);
      };
      constexpr int first = minInt(C::Stages, slabs);
      for (int slab = 0; slab < first; slab++)
        loadW(slab);
      if (tileM == 0)
        for (int slab = first; slab < slabs; slab++)
          prefetchBox(wMap, col0, (firstSlab + slab) * L::BK);
      waitForPredecessor();
      releaseSuccessor();
      for (int slab = 0; slab < first; slab++)
        loadX(slab);
      for (int slab = first; slab < slabs; slab++) {
        ring.empty[slab % C::Stages].wait((slab / C::Stages - 1) % 2);
        loadW(slab);
        loadX(slab);
      }
    }
    __syncwarp();
    if constexpr (C::SplitK > 1) {
      clusterBarrier();
      clusterBarrier();
    }
    return;
  }

  float acc[1][L::tiles][4];
  // What belongs to columns waits in shared memory for the end.
  epilogue.stageColumns(columns, col0, C::N, threadIdx.x, L::consumers);
  norm.stageColumns(columns + Epilogue::columnOperands, col0, C::N, threadIdx.x, L::consumers);
  copyAsyncCommit();
  waitForPredecessor();
  const int warpRow = row0 + warp * 16, lane = threadIdx.x % 32;
  const typename Norm::Parts parts[2] = {norm.load(warpRow + lane / 4, m),
                                         norm.load(warpRow + lane / 4 + 8, m)};
  const typename Ring::Consumer consumer(ring, shared, group * 64);
  auto multiply = [&](int slab, int stage, int parity) {
    consumer.wait(stage, parity);
    multiplySlab(acc[0], consumer.xAt(stage), consumer.wAt(stage), slab > 0);
    wgmmaWait<1>();
    if (slab > 0)
      consumer.handBack((stage + C::Stages - 1) % C::Stages);
  };
  // Stages by constants: to compute the place of a slab takes longer than its product. No way out
  // between them, where the compiler would wait for each.
  constexpr int rounds = slabs / C::Stages;
#pragma unroll 1
  for (int round = 0; round < rounds; round++)
#pragma unroll
    for (int stage = 0; stage < C::Stages; stage++)
      multiply(round * C::Stages + stage, stage, round % 2);
#pragma unroll
  for (int stage = 0; stage < slabs % C::Stages; stage++)
    multiply(rounds * C::Stages + stage, stage, rounds % 2);
  wgmmaWait<0>();
  const typename Norm::Row rows[1][2] = {{norm.row(parts[0]), norm.row(parts[1])}};
  copyAsyncWait<0>();
  asm volatile("bar.sync 1, %0;" ::"n"(L::consumers) : "memory"); // all columns are there

  if constexpr (C::SplitK == 1) {
    storeTile<1, 9, L::whole>(acc, y, m, C::N, warpRow, col0, nullptr, nullptr, 0, epilogue, norm,
                              rows, statistics);
  } else {
    // Every slab has been read by now.
    float part[1][L::share][4] = {};
    sumOverCluster<C::SplitK, L::consumers>(part[0], acc[0], shared, split);
    const int firstCol = col0 + split * L::share * 8;
    storeTile<1, 9, L::whole>(part, y, m, C::N, warpRow, firstCol, nullptr, nullptr, 0, epilogue,
                              norm, rows, statistics);
    clusterBarrier(); // no block ends while others read its sums
  }
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c

// linear in fp32 by 3xTF32 (tf32.cuh) and wgmma, sm_90a alone: Y[M,N] = epilogue(X[M,K] * W[N,K]^T)
//
// BM x BN of Y per block, K in slabs of 32 through a ring of Stages. A warpgroup has the copy engine
// fill it and splits the slabs of W in shared memory, the high parts in place, the low ones beside
// them; BM / 64 warpgroups split the rows of X in registers and multiply, 64 x BN each. A
// slab's sums come from the matrix unit, those of all slabs are added in fp32.
//
// With SplitK > 1 that many blocks share a tile as a thread block cluster, as in linear_tf32.cuh.
//
// Config: Y (float or __half), BM (64 or 128), BN (that wgmmaTf32 lists), Stages, SplitK (at most 8).
// Kernel: xMap X f32[M,K] in boxes of BM rows, wMap W f32[N,K] in boxes of BN rows (to a tensor map
// 2 K halves are K floats), y Y[M,N], m, n, k (a multiple of 4), then the operands of the epilogue.
// Grid: (ceil(M / BM), ceil(N / BN), SplitK), clusters of (1, 1, SplitK); block:
// LinearTf32Wgmma<C>::threads; dynamic shared: LinearTf32Wgmma<C>::sharedBytes. Bytes and flops: as
// there.
#pragma once

#include "templates/linear/tf32/linear_tf32.cuh"
#include "templates/device/tma.cuh"
#include "templates/device/wgmma.cuh"

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
  static constexpr int sharedBytes = C::Stages * stageFloats * 4 + 1024; // slabs begin at 1 KiB
  static_assert(C::BM % 64 == 0 && C::BN % 8 == 0 && C::Stages >= 2);
};

namespace tile {

template <typename C, typename Epilogue>
__device__ __forceinline__ void
linearTf32Wgmma(const TensorMap &xMap, const TensorMap &wMap, typename C::Y *y, int m, int n, int k,
                int tileM, int tileN, int split, void *dynamicShared, const Epilogue &epilogue) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using L = LinearTf32Wgmma<C>;
  using Tile = Tf32WgmmaTile<C>;
  // Slabs that are full, whose W is split, that may be filled again.
  __shared__ Barrier full[C::Stages], halved[C::Stages], empty[C::Stages];
  float *shared = reinterpret_cast<float *>(alignedSlabs(dynamicShared));
  // The compiler has to see that a warp agrees on its role, or it waits after every wgmma.
  const int warp = __shfl_sync(fullWarp, threadIdx.x / 32, 0), group = warp / 4;
  const int row0 = tileM * C::BM, col0 = tileN * C::BN;
  const int allSlabs = (k + L::BK - 1) / L::BK;
  const int firstSlab = allSlabs * split / C::SplitK,
            slabs = allSlabs * (split + 1) / C::SplitK - firstSlab;
  if (threadIdx.x == 0) {
    for (int s = 0; s < C::Stages; s++) {
      full[s].init(1);
      halved[s].init(4);
      empty[s].init(4 * L::groups);
    }
    fenceBarrierInit();
  }
  __syncthreads();
  auto xSlab = [&](int stage) { return shared + stage * L::stageFloats; };
  auto wSlab = [&](int stage) { return shared + stage * L::stageFloats + C::BM * L::BK; };

  if (group == L::groups) {
    const bool loads = threadIdx.x == L::consumers;
    auto column = [&](int slab) { return (firstSlab + slab) * L::BK * 2; };
    auto loadX = [&](int slab) {
      const int stage = slab % C::Stages;
      copyBox(xSlab(stage), xMap, row0, column(slab), full[stage]);
    };
    auto loadW = [&](int slab) {
      const int stage = slab % C::Stages;
      full[stage].expect((C::BM + C::BN) * L::BK * 4);
      copyBox(wSlab(stage), wMap, col0, column(slab), full[stage]);
    };
    if (loads) {
      const int first = min(C::Stages, slabs);
      for (int slab = 0; slab < first; slab++)
        loadW(slab);
      if (tileM == 0)
        for (int slab = first; slab < slabs; slab++)
          prefetchBox(wMap, col0, column(slab));
      waitForPredecessor();
      releaseSuccessor();
      for (int slab = 0; slab < first; slab++)
        loadX(slab);
    }
    __syncwarp();
#pragma unroll 1
    for (int slab = 0; slab < slabs; slab++) {
      const int stage = slab % C::Stages;
      full[stage].wait(slab / C::Stages % 2);
      uint4 *high = reinterpret_cast<uint4 *>(wSlab(stage)), *low = high + C::BN * 8;
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
      fenceShared();
      __syncwarp();
      if (threadIdx.x % 32 == 0)
        halved[stage].arrive();
      // The slab before is the next to be free.
      const int next = slab - 1 + C::Stages;
      if (loads && slab > 0 && next < slabs) {
        empty[next % C::Stages].wait((slab - 1) / C::Stages % 2);
        loadW(next);
        loadX(next);
      }
      __syncwarp();
    }
    if constexpr (C::SplitK > 1) {
      clusterBarrier();
      clusterBarrier();
    }
    return;
  }

  const Tf32Lane<Tile> lane(warp, threadIdx.x % 32);
  float acc[1][L::tiles][4] = {};
  for (int i = threadIdx.x; i < C::BN && col0 + i < n; i += L::consumers)
    epilogue.prefetchColumn(col0 + i);
  waitForPredecessor();
#pragma unroll 1
  for (int slab = 0; slab < slabs; slab++) {
    const int stage = slab % C::Stages;
    full[stage].wait(slab / C::Stages % 2);
    tf32::Split<4> a[4];
#pragma unroll
    for (int kk = 0; kk < 4; kk++) {
      unsigned bits[4];
      loadMatrix4(bits, sharedAddress(xSlab(stage)) + lane.a + (lane.unitA ^ (kk * 32)));
#pragma unroll
      for (int e = 0; e < 4; e++)
        a[kk].set(e, bits[e]);
    }
    halved[stage].wait(slab / C::Stages % 2);
    const u64 high = swizzledOperand(wSlab(stage)),
              low = swizzledOperand(wSlab(stage) + C::BN * L::BK);
    float sums[L::tiles][4];
    wgmmaFence();
#pragma unroll
    for (int kk = 0; kk < 4; kk++) {
      wgmmaTf32(sums, a[kk].low, high + 2 * kk, kk > 0);
      wgmmaTf32(sums, a[kk].high, low + 2 * kk, true);
      wgmmaTf32(sums, a[kk].high, high + 2 * kk, true);
    }
    wgmmaCommit();
    wgmmaWait<0>();
    if (threadIdx.x % 32 == 0)
      empty[stage].arrive();
#pragma unroll
    for (int j = 0; j < L::tiles; j++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        acc[0][j][e] += sums[j][e];
  }
  if constexpr (C::SplitK == 1) {
    storeTile<1>(acc, y, m, n, row0 + lane.warpRow, col0, nullptr, nullptr, 0, epilogue);
  } else {
    // Every warp of the block has read every slab.
    asm volatile("bar.sync 1, %0;" ::"n"(L::consumers) : "memory");
    putSums<Tile>(shared, acc, lane);
    clusterBarrier();
    endPart<Tile>(y, m, n, row0, col0, split, shared, epilogue);
    clusterBarrier(); // no block ends while others read its sums
  }
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c

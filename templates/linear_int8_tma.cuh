// linear for up to some hundred rows, or whose rows of X have scales of groups; int8 operands,
// sm_90a alone: Y[M,N] = epilogue(scales * (X[M,K] * W[N,K]^T))
//
// As linear_tma: BM x BN of Y per block, BM / 64 warpgroups, each 64 x BN by wgmma.m64nBNk32 with
// exact int32 sums in registers, and a thread that has the copy engine fill a ring of Stages slabs,
// here of 128 columns of K. K is at most 2^17, so that no sum overflows.
//
// XGroup 64 or 128: the sums of each XGroup elements of K are multiplied by xScale of row and group
// and added up in fp32. K is a multiple of XGroup. XGroup 0: one int32 sum, multiplied by xScale of
// its row (RowScale) or not. Every other scale is a matter of the epilogue.
//
// YGroup 64 or 128: Y is quantised, one scale for each YGroup columns of a row (int8.cuh), which
// lie in one tile. N is a multiple of YGroup, BN too; no split K.
//
// Config: Y (float or __half; signed char with YGroup), BM (64 or 128), BN (a multiple of 16 that
// wgmma lists), Stages, SplitK (a cluster, as in linear_tma), XGroup, RowScale, YGroup.
// Kernel: xMap X i8[M,K] in boxes of BM rows, wMap W i8[N,K] in boxes of BN rows, y Y[M,N], m, n, k
// (a multiple of 16), then with XGroup or RowScale xScale f32[M,K/XGroup] or f32[M], with YGroup
// yScale f32[M,N/YGroup], then the operands of the epilogue. Grid and shared memory: as linear_tma;
// block: LinearInt8Tma<C>::threads. Bytes: M K + N K + sizeof(Y) M N + scales and epilogue
// operands; operations: 2 M N K.
#pragma once

#include "linear_store_columns.cuh"
#include "linear_store_quantised.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

namespace gpt2c {

template <typename C> struct LinearInt8Tma {
  static constexpr int groups = C::BM / 64;
  static constexpr int consumers = 128 * groups;
  // Two warpgroups take registers from a third.
  static constexpr int loaders = groups == 2 ? 128 : 32;
  static constexpr int threads = consumers + loaders;
  static constexpr int BK = 128;
  static constexpr int stageBytes = (C::BM + C::BN) * BK;
  static constexpr int sharedBytes = C::Stages * stageBytes + 1024; // slabs begin at 1 KiB
  static constexpr int tiles = C::BN / 8, share = tiles / C::SplitK;
  static_assert(C::BM % 64 == 0 && C::BN % 16 == 0 && C::Stages >= 2);
  static_assert(C::SplitK == 1 || (tiles % C::SplitK == 0 && C::YGroup == 0 &&
                                   C::BM * C::BN * 4 <= C::Stages * stageBytes));
  // Sums of groups: two sets of a warpgroup, or warpgroups that take turns.
  static constexpr bool turns = C::XGroup > 0 && groups == 2 && C::BN > 96;
  static_assert(C::XGroup == 0 || C::XGroup == 64 || C::XGroup == 128);
  static_assert(C::XGroup == 0 || turns || C::BN <= 128);
  static_assert(C::YGroup == 0 || C::BN % maxInt(C::YGroup, 1) == 0);
};

namespace tile {

template <typename C, typename Epilogue>
__device__ __forceinline__ void
linearInt8Tma(const TensorMap &xMap, const TensorMap &wMap, typename C::Y *y, int m, int n, int k,
              const float *xScale, float *yScale, int tileM, int tileN, int split,
              void *dynamicShared, const Epilogue &epilogue) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using L = LinearInt8Tma<C>;
  __shared__ Barrier full[C::Stages], empty[C::Stages];
  i8 *shared = reinterpret_cast<i8 *>(alignedSlabs(dynamicShared));
  // The compiler has to see that a warp agrees on its role, or it waits after every wgmma.
  const int group = __shfl_sync(fullWarp, threadIdx.x / 128, 0), warp = threadIdx.x / 32;
  const int row0 = tileM * C::BM, col0 = tileN * C::BN;
  const int allSlabs = (k + L::BK - 1) / L::BK;
  const int firstSlab = allSlabs * split / C::SplitK,
            slabs = allSlabs * (split + 1) / C::SplitK - firstSlab;
  if (threadIdx.x == 0) {
    for (int s = 0; s < C::Stages; s++) {
      full[s].init(1);
      empty[s].init(4 * L::groups);
    }
    fenceBarrierInit();
  }
  __syncthreads();

  if (group == L::groups) {
    if constexpr (L::groups == 2)
      releaseRegisters<24>();
    if (threadIdx.x == L::consumers) {
      // Maps count in halves.
      auto column = [&](int slab) { return (firstSlab + slab) * L::BK / 2; };
      auto loadX = [&](int slab) {
        const int stage = slab % C::Stages;
        copyBox(shared + stage * L::stageBytes, xMap, row0, column(slab), full[stage]);
      };
      auto loadW = [&](int slab) {
        const int stage = slab % C::Stages;
        full[stage].expect(L::stageBytes);
        copyBox(shared + stage * L::stageBytes + C::BM * L::BK, wMap, col0, column(slab),
                full[stage]);
      };
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
      for (int slab = first; slab < slabs; slab++) {
        empty[slab % C::Stages].wait((slab / C::Stages - 1) % 2);
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

  if constexpr (L::groups == 2)
    claimRegisters<240>();
  for (int i = threadIdx.x; i < C::BN && col0 + i < n; i += L::consumers)
    epilogue.prefetchColumn(col0 + i);
  waitForPredecessor();
  const int warpRow = row0 + warp * 16;
  auto rowOf = [&](int h) { return min(warpRow + h * 8 + (int)threadIdx.x % 32 / 4, m - 1); };
  // Columns first to last of a slab; the last instruction is a group of its own.
  auto multiply = [&](int(&sums)[L::tiles][4], int slab, int first, int last, bool add) {
    const i8 *a = shared + slab % C::Stages * L::stageBytes;
    const u64 operandA = swizzledOperand(a + group * 64 * L::BK),
              operandB = swizzledOperand(a + C::BM * L::BK);
    wgmmaFence();
#pragma unroll
    for (int kk = first / 32; kk < last / 32; kk++) { // 32 bytes are two 16-byte units
      if (L::turns && kk == last / 32 - 1)
        wgmmaCommit();
      wgmma(sums, operandA + kk * 2, operandB + kk * 2, add || kk > first / 32);
    }
    wgmmaCommit();
  };
  auto waitFor = [&](int slab) { full[slab % C::Stages].wait(slab / C::Stages % 2); };
  auto handBack = [&](int slab) {
    if (threadIdx.x % 32 == 0)
      empty[slab % C::Stages].arrive();
  };
  float acc[1][L::tiles][4] = {};
  if constexpr (C::XGroup == 0) {
    int sums[L::tiles][4];
    float scale[2];
#pragma unroll
    for (int h = 0; h < 2; h++)
      scale[h] = C::RowScale ? xScale[rowOf(h)] : 1.0f;
#pragma unroll 1
    for (int slab = 0; slab < slabs; slab++) {
      waitFor(slab);
      multiply(sums, slab, 0, L::BK, slab > 0);
      wgmmaWait<1>();
      if (slab > 0)
        handBack(slab - 1);
    }
    wgmmaWait<0>();
    pinSums(sums);
    addSums(acc[0], sums, scale);
  } else {
    constexpr int parts = L::BK / C::XGroup; // of a slab
    const int units = slabs * parts, scales = k / C::XGroup;
    const float *at[2] = {xScale + (i64)rowOf(0) * scales, xScale + (i64)rowOf(1) * scales};
    float scale[2], next[2];
    auto nextScale = [&](int unit) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        scale[h] = next[h];
        next[h] = at[h][min(firstSlab * parts + unit, scales - 1)];
      }
    };
    nextScale(0);
    if constexpr (L::turns) {
      // While one warpgroup scales its sums, the other multiplies.
      auto turnOf = [](int g) { return 2 + g; };
      if (group == 1)
        asm volatile("bar.arrive %0, 256;" ::"r"(turnOf(0)) : "memory");
      int sums[L::tiles][4];
#pragma unroll 1
      for (int slab = 0; slab < slabs; slab++)
#pragma unroll
        for (int part = 0; part < parts; part++) {
          nextScale(slab * parts + part + 1);
          if (part == 0)
            waitFor(slab);
          asm volatile("bar.sync %0, 256;" ::"r"(turnOf(group)) : "memory");
          multiply(sums, slab, part * C::XGroup, (part + 1) * C::XGroup, false);
          wgmmaWait<1>();
          if (group == 0 || slab * parts + part + 1 < units)
            asm volatile("bar.arrive %0, 256;" ::"r"(turnOf(1 - group)) : "memory");
          wgmmaWait<0>();
          if (part == parts - 1)
            handBack(slab);
          pinSums(sums);
          addSums(acc[0], sums, scale);
        }
    } else {
      // One group is scaled while the next is multiplied. `Next`: its place in the slab.
      int even[L::tiles][4], odd[L::tiles][4];
      auto end = [&](int unit, int(&sums)[L::tiles][4], auto next) {
        if (next.value == 0)
          handBack(unit / parts);
        pinSums(sums);
        addSums(acc[0], sums, scale);
      };
      auto step = [&](int unit, int(&sums)[L::tiles][4], int(&ahead)[L::tiles][4], auto next) {
        nextScale(unit + 1);
        if (next.value == 0)
          waitFor((unit + 1) / parts);
        multiply(ahead, (unit + 1) / parts, next.value * C::XGroup, (next.value + 1) * C::XGroup,
                 false);
        wgmmaWait<1>();
        end(unit, sums, next);
      };
      const IntConstant<0> first;
      const IntConstant<parts - 1> last;
      waitFor(0);
      multiply(even, 0, 0, C::XGroup, false);
      int unit = 0;
#pragma unroll 1
      for (; unit + 2 < units; unit += 2) {
        step(unit, even, odd, last);
        step(unit + 1, odd, even, first);
      }
      if (unit + 1 < units) {
        step(unit, even, odd, last);
        unit++;
        nextScale(unit + 1);
        wgmmaWait<0>();
        end(unit, odd, first);
      } else {
        nextScale(unit + 1);
        wgmmaWait<0>();
        end(unit, even, first);
      }
    }
  }

  if constexpr (C::YGroup > 0) {
    storeTileQuantised<C::YGroup>(acc, y, yScale, m, n, warpRow, col0, epilogue);
  } else if constexpr (C::SplitK == 1) {
    storeColumns<16>(acc, y, m, n, warpRow, col0, epilogue);
  } else {
    // Every slab has been read by now. Blocks store what they have, four sums of a thread together,
    // and take back their share of the columns from all.
    float4 *sums = reinterpret_cast<float4 *>(shared) + threadIdx.x;
    asm volatile("bar.sync 1, %0;" ::"n"(L::consumers) : "memory");
#pragma unroll
    for (int j = 0; j < L::tiles; j++)
      sums[j * L::consumers] = float4{acc[0][j][0], acc[0][j][1], acc[0][j][2], acc[0][j][3]};
    clusterBarrier();
    float part[1][L::share][4] = {};
#pragma unroll
    for (int s = 0; s < C::SplitK; s++) {
      float4 v[L::share];
#pragma unroll
      for (int j = 0; j < L::share; j++)
        v[j] = loadFromCluster(sums + (split * L::share + j) * L::consumers, s);
#pragma unroll
      for (int j = 0; j < L::share; j++) {
        part[0][j][0] += v[j].x;
        part[0][j][1] += v[j].y;
        part[0][j][2] += v[j].z;
        part[0][j][3] += v[j].w;
      }
    }
    storeColumns<16>(part, y, m, n, warpRow, col0 + split * L::share * 8, epilogue);
    clusterBarrier(); // no block ends while others read its sums
  }
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c

// linear for up to some hundred rows, or whose rows of X have scales of groups; int8 operands,
// sm_90a alone: Y[M,N] = epilogue(scales * (X[M,K] * W[N,K]^T))
//
// As linear_tma: BM x BN of Y per block, BM / 64 warpgroups, each 64 x BN by wgmma.m64nBNk32 with
// exact int32 sums in registers, and a thread that has the copy engine fill a ring of Stages slabs,
// here of 128 columns of K. K is at most 2^17, so that no sum overflows.
//
// XGroup 64 or 128: the sums of each XGroup elements of K are multiplied by xScale of row and group
// and added up in fp32. K is a multiple of XGroup. XGroup 0: one int32 sum, multiplied by xScale of
// its row (RowScale) or not. Every other scale is a matter of the epilogue. The scales of groups wait
// in shared memory, since from L2 they take longer than the product of a group.
//
// Residual: behind the epilogue the tile of R is added, which the copy engine brings, too.
//
// YGroup 64 or 128: Y is quantised, one scale for each YGroup columns of a row (int8.cuh), which
// lie in one tile. N is a multiple of YGroup, BN too; no split K. With Gelu (and XGroup 0) behind
// gelu, both in fp16. YGroup 0 and Y of signed char: the epilogue ends in integers, or
// with Gelu and N a multiple of 8 `given` says what gelu's results become.
//
// Config: Y (float, __half or signed char, the last with YGroup), N, K (a multiple of 16), BM (64 or
// 128), BN (a multiple of 16 that wgmma lists), Stages, SplitK (a cluster, as in linear_tma), XGroup,
// RowScale, YGroup, Gelu, Residual (Y __half, BN a multiple of 64 that divides N, no split K).
// Kernel: xMap X i8[M,K] in boxes of BM rows, wMap W i8[N,K] in boxes of BN rows, with Residual rMap
// R f16[M,N] in boxes of BM rows, y Y[M,N], m, then with XGroup or RowScale xScale f32[M,K/XGroup]
// or f32[M], with YGroup yScale f32[M,N/YGroup], then the operands of the epilogue. Grid and shared
// memory: as linear_tma; block: LinearInt8Tma<C>::threads. Bytes: M K + N K + sizeof(Y) M N + scales
// and epilogue operands; operations: 2 M N K.
#pragma once

#include "templates/linear/parts/linear_store.cuh"
#include "templates/linear/parts/linear_store_halves.cuh"
#include "templates/linear/parts/linear_store_quantised.cuh"
#include "templates/device/tma_pipeline.cuh"

namespace gpt2c {

template <typename C> struct LinearInt8Tma {
  static constexpr int groups = C::BM / 64;
  static constexpr int consumers = 128 * groups;
  // Two warpgroups take registers from a third.
  static constexpr int loaders = groups == 2 ? 128 : 32;
  static constexpr int threads = consumers + loaders;
  static constexpr int BK = 128;
  static constexpr bool whole = C::N % C::BN == 0;
  static constexpr int stageBytes = (C::BM + C::BN) * BK;
  static constexpr int scales = C::XGroup > 0 ? C::K / maxInt(C::XGroup, 1) : 0; // of a row
  static constexpr int residualBytes = C::Residual ? C::BM * C::BN * 2 : 0;
  static constexpr int tiles = C::BN / 8, share = tiles / C::SplitK;
  // Slabs begin at 1 KiB; the tile of R, the scales and the cluster's sums follow.
  static constexpr int sumsAt = C::Stages * stageBytes + residualBytes + C::BM * scales * 4;
  static constexpr int sharedBytes =
      sumsAt + clusterSumsBytes(C::SplitK, consumers, share) + 1024;
  static_assert(C::BM % 64 == 0 && C::BN % 16 == 0 && C::Stages >= 2);
  static_assert(C::SplitK == 1 || (tiles % C::SplitK == 0 && C::YGroup == 0));
  // Sums of groups: two sets, or where there are no registers for them, of halves of the columns.
  static constexpr bool halves = C::XGroup > 0 && groups == 2 && C::BN > 96;
  static_assert(C::XGroup == 0 || C::XGroup == 64 || C::XGroup == 128);
  static_assert(C::XGroup == 0 || halves || C::BN <= 128);
  static_assert(!C::Gelu || (C::XGroup == 0 && C::SplitK == 1 && sizeof(typename C::Y) == 1));
  static_assert(C::YGroup == 0 || C::BN % maxInt(C::YGroup, 1) == 0);
  static_assert(!C::Residual || (whole && C::BN % 64 == 0 && C::SplitK == 1 && C::YGroup == 0));
};

namespace tile {

template <typename C, typename Epilogue, typename Given = quantised::AsTheyAre>
__device__ __forceinline__ void
linearInt8Tma(const TensorMap &xMap, const TensorMap &wMap, const TensorMap &rMap,
              typename C::Y *y, int m, const float *xScale, float *yScale, int tileM, int tileN,
              int split, void *dynamicShared, Epilogue epilogue, const Given &given = {}) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using L = LinearInt8Tma<C>;
  using Ring = SlabRing<C::BM, C::BN, C::Stages, 4 * L::groups>;
  __shared__ Ring ring;
  __shared__ ClusterSums<C::SplitK, L::consumers, L::share> sumsOfCluster;
  __shared__ Barrier residualFull;
  __shared__ alignas(16) float columns[maxInt(1, Epilogue::columnOperands)][C::BN];
  i8 *shared = reinterpret_cast<i8 *>(alignedSlabs(dynamicShared));
  // The compiler has to see that a warp agrees on its role, or it waits after every wgmma.
  const int group = __shfl_sync(fullWarp, threadIdx.x / 128, 0), warp = threadIdx.x / 32;
  const int row0 = tileM * C::BM, col0 = tileN * C::BN;
  // Parts of K are equal: what the last has too many are zeros.
  constexpr int slabs = ceilDiv(ceilDiv(C::K, L::BK), C::SplitK);
  const int firstSlab = split * slabs;
  char *residual = reinterpret_cast<char *>(shared) + C::Stages * L::stageBytes;
  float *scalesOfTile = reinterpret_cast<float *>(residual + L::residualBytes);
  if (threadIdx.x == 0) {
    residualFull.init(1);
    if constexpr (C::SplitK > 1)
      sumsOfCluster.init();
    ring.init();
  }
  __syncthreads();
  if constexpr (C::SplitK > 1)
    sumsOfCluster.begin();

  if (group == L::groups) {
    if constexpr (L::groups == 2)
      releaseRegisters<24>();
    if (threadIdx.x == L::consumers) {
      // Maps count in halves.
      auto column = [&](int slab) { return (firstSlab + slab) * L::BK / 2; };
      auto loadX = [&](int slab) {
        ring.loadX(shared, slab % C::Stages, xMap, row0, column(slab));
      };
      auto loadW = [&](int slab) {
        ring.loadW(shared, slab % C::Stages, wMap, col0, column(slab));
      };
      constexpr int first = minInt(C::Stages, slabs);
      // Unrolled, they need more registers than a loader has.
#pragma unroll 1
      for (int slab = 0; slab < first; slab++)
        loadW(slab);
      if (tileM == 0)
#pragma unroll 1
        for (int slab = first; slab < slabs; slab++)
          prefetchBox(wMap, col0, column(slab));
      waitForPredecessor();
      releaseSuccessor();
#pragma unroll 1
      for (int slab = 0; slab < first; slab++)
        loadX(slab);
      if constexpr (C::Residual) {
        residualFull.expect(L::residualBytes);
#pragma unroll 1
        for (int i = 0; i < C::BN / 64; i++)
          copyBox(residual + i * C::BM * 128, rMap, row0, col0 + i * 64, residualFull);
      }
#pragma unroll 1
      for (int slab = first; slab < slabs; slab++) {
        ring.empty[slab % C::Stages].wait((slab / C::Stages - 1) % 2);
        loadW(slab);
        loadX(slab);
      }
    }
    __syncwarp();
    if constexpr (C::SplitK > 1)
      sumsOfCluster.allHaveBegun();
    return;
  }

  if constexpr (L::groups == 2)
    claimRegisters<240>();
  if constexpr (C::XGroup > 0) {
    waitForPredecessor();
    constexpr int each = L::scales % 4 == 0 ? 4 : 1; // that are copied at once
#pragma unroll 2
    for (int i = threadIdx.x * each; i < C::BM * L::scales; i += L::consumers * each) {
      const i64 at = (i64)row0 * L::scales + i, last = (i64)m * L::scales - each;
      if constexpr (each == 4)
        copyAsync16(scalesOfTile + i, xScale + (at < last ? at : last), true);
      else
        copyAsync4(scalesOfTile + i, xScale + (at < last ? at : last));
    }
    copyAsyncCommit();
  }
  // What belongs to columns waits in shared memory for the end.
  epilogue.stageColumns(columns, col0, C::N, threadIdx.x, L::consumers);
  copyAsyncCommit();
  if constexpr (C::XGroup == 0)
    waitForPredecessor();
  const int warpRow = row0 + warp * 16;
  auto rowOf = [&](int h) { return min(warpRow + h * 8 + (int)threadIdx.x % 32 / 4, m - 1); };
  const typename Ring::Consumer consumer(ring, shared, group * 64);
  auto copiesAreThere = [](auto later) {
    copyAsyncWait<later.value>();
    asm volatile("bar.sync 1, %0;" ::"n"(L::consumers) : "memory");
  };
  float acc[1][L::tiles][4] = {};
  if constexpr (C::XGroup == 0) {
    int sums[L::tiles][4];
    float scale[2];
#pragma unroll
    for (int h = 0; h < 2; h++)
      scale[h] = C::RowScale ? xScale[rowOf(h)] : 1.0f;
    auto multiply = [&](int slab, int stage, int parity) {
      consumer.wait(stage, parity);
      multiplySlab(sums, consumer.xAt(stage), consumer.wAt(stage), slab > 0);
      wgmmaWait<1>();
      if (slab > 0)
        consumer.handBack((stage + C::Stages - 1) % C::Stages);
    };
    overSlabs<slabs, C::Stages>(multiply);
    wgmmaWait<0>();
    pinSums(sums);
    if constexpr (C::Gelu) {
      copiesAreThere(IntConstant<0>());
      if constexpr (Given::quantises)
        storeGeluBytes<L::whole>(sums, scale, y, m, C::N, warpRow, col0, epilogue, given);
      else
        storeGeluQuantised<C::YGroup, L::whole>(sums, scale, y, yScale, m, C::N, warpRow, col0,
                                                epilogue);
      return;
    }
    scaleSums(acc[0], sums, scale);
  } else {
    constexpr int parts = L::BK / C::XGroup; // of a slab
    // A compiler that knows the number joins the loop over units with its end and waits for each
    // wgmma.
    int units = slabs * parts;
    asm volatile("" : "+r"(units));
    copiesAreThere(IntConstant<1>());
    const float *at = scalesOfTile + (warp * 16 + (int)threadIdx.x % 32 / 4) * L::scales;
    float scale[2], next[2];
    auto nextScale = [&](int unit) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        scale[h] = next[h];
        next[h] = at[h * 8 * L::scales + min(firstSlab * parts + unit, L::scales - 1)];
      }
    };
    nextScale(0);
    // The slab and the group in it that is multiplied, and the slab before.
    int stage = 0, parity = 0, part = 0, before = 0;
    auto nextSlab = [&](bool next) {
      before = stage;
      stage += next;
      if (stage == C::Stages)
        stage = 0, parity ^= 1;
      consumer.wait(stage, parity);
    };
    // Groups of K of `sums`, columns from `col` on.
    auto issue = [&](auto &sums, int col) {
      const int within = part * (C::XGroup / 16); // 16-byte units of the slab's rows
      const u64 operandA = consumer.xAt(stage) + within,
                operandB = consumer.wAt(stage) + col * (L::BK / 16) + within;
      wgmmaFence();
#pragma unroll
      for (int kk = 0; kk < C::XGroup / 32; kk++)
        wgmma(sums, operandA + kk * 2, operandB + kk * 2, kk > 0);
      wgmmaCommit();
    };
    consumer.wait(0, 0);
    if constexpr (L::halves) {
      // Half of the columns of a group is scaled while the other half is multiplied.
      using Half = int[L::tiles / 2][4];
      Half left, right;
      auto scaleHalf = [&](Half &sums, auto side) {
        pinSums(sums);
        addSums(reinterpret_cast<float(&)[L::tiles / 2][4]>(acc[0][side.value * L::tiles / 2]),
                sums, scale);
      };
      const IntConstant<0> first;
      const IntConstant<1> second;
      auto multiplyRight = [&](int unit) {
        nextScale(unit + 1);
        issue(right, C::BN / 2);
        wgmmaWait<1>();
        scaleHalf(left, first);
      };
      auto multiplyLeft = [&] {
        part = (part + 1) % parts;
        nextSlab(part == 0);
        issue(left, 0);
        wgmmaWait<1>();
        if (part == 0)
          consumer.handBack(before);
        scaleHalf(right, second);
      };
      issue(left, 0);
      int steps = 2 * units, step = 0;
      asm volatile("" : "+r"(steps)); // even, which is to stay unknown too
#pragma unroll 1
      for (; step + 2 < steps; step += 2) {
        multiplyRight(step / 2);
        multiplyLeft();
      }
      if (step + 1 < steps) {
        multiplyRight(step / 2);
        wgmmaWait<0>();
        scaleHalf(right, second);
      } else {
        wgmmaWait<0>();
        scaleHalf(left, first);
      }
    } else {
      // One group is scaled while the next is multiplied. `next`: its place in the slab.
      int even[L::tiles][4], odd[L::tiles][4];
      auto end = [&](int(&sums)[L::tiles][4]) {
        pinSums(sums);
        addSums(acc[0], sums, scale);
      };
      auto step = [&](int unit, int(&sums)[L::tiles][4], int(&ahead)[L::tiles][4], auto next) {
        nextScale(unit + 1);
        part = next.value;
        if (next.value == 0)
          nextSlab(true);
        issue(ahead, 0);
        wgmmaWait<1>();
        if (next.value == 0)
          consumer.handBack(before);
        end(sums);
      };
      const IntConstant<0> first;
      const IntConstant<parts - 1> last;
      issue(even, 0);
      int unit = 0;
#pragma unroll 1
      for (; unit + 2 < units; unit += 2) {
        step(unit, even, odd, last);
        step(unit + 1, odd, even, first);
      }
      if (unit + 1 < units) {
        step(unit, even, odd, last);
        nextScale(unit + 2);
        wgmmaWait<0>();
        end(odd);
      } else {
        nextScale(unit + 1);
        wgmmaWait<0>();
        end(even);
      }
    }
  }

  copiesAreThere(IntConstant<0>());
  if constexpr (C::Residual) {
    residualFull.wait(0);
    storeOnto<C::BM>(acc[0], y, m, C::N, warpRow, col0, residual + warp * 16 * 128, epilogue);
  } else if constexpr (C::YGroup > 0) {
    storeTileQuantised<C::YGroup>(acc, y, yScale, m, C::N, warpRow, col0, epilogue);
  } else if constexpr (C::SplitK == 1 && sizeof(typename C::Y) == 1) {
    storeTileBytes<L::whole>(acc, y, m, C::N, warpRow, col0, epilogue);
  } else if constexpr (C::SplitK == 1) {
    storeTile<1, 12, L::whole>(acc, y, m, C::N, warpRow, col0, nullptr, nullptr, 0, epilogue);
  } else {
    float part[1][L::share][4];
    sumsOfCluster.allHaveBegun();
    sumsOfCluster.addUp(part[0], acc[0], shared + L::sumsAt, split);
    storeTile<1, 12, L::whole>(part, y, m, C::N, warpRow, col0 + split * L::share * 8, nullptr,
                               nullptr, 0, epilogue);
  }
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c

// linear for up to some hundred rows, or whose rows of X have scales of groups; operands of a byte,
// sm_90a alone: Y[M,N] = epilogue(scales * (X[M,K] * W[N,K]^T))
//
// As linear_tma: BM x BN of Y per block, BM / 64 warpgroups, each 64 x BN by wgmma.m64nBNk32 with
// accumulators in registers, and a thread that has TMA fill a ring of Stages k-tiles, here of 128
// columns of K. Of int8 accumulators are int32 and exact: K is at most 2^17, so that none
// overflows. Of fp8 they hold few bits (wgmma.cuh): after 128 columns of K they are added to others
// in fp32.
//
// XGroup 64 or 128: the sums of each XGroup elements of K are multiplied by xScale of row and group
// and added up in fp32. K is a multiple of XGroup. XGroup 0: one sum, multiplied by xScale of its
// row (RowScale) or not. Every other scale is a matter of the epilogue. The scales of groups wait
// in shared memory, since from L2 they take longer than the product of a group.
//
// Residual: behind the epilogue the tile of R is added, which TMA brings, too.
//
// YGroup 64 or 128: Y is quantised, one scale for each YGroup columns of a row (int8.cuh), which
// lie in one tile. N is a multiple of YGroup, BN too; no split-K. With Gelu (and XGroup 0) behind
// gelu, both in fp16. YGroup 0 and Y of a byte: the epilogue ends in steps, or with Gelu and N a
// multiple of 8 `given` says what gelu's results become, in integers.
//
// Config: X (signed char or Fp8), Y (of floats, or X with YGroup), N, K (a multiple of 16), BM (64
// or 128), BN (a multiple of 16 that wgmma lists), Stages, SplitK (a cluster, as in linear_tma),
// XGroup, RowScale, YGroup, Gelu, Residual (Y __half, BN a multiple of 64 that divides N, no
// split-K).
// Kernel: xMap X[M,K] in boxes of BM rows, wMap W X[N,K] in boxes of BN rows, with Residual
// rMap R f16[M,N] in boxes of BM rows, y Y[M,N], m, then with XGroup or RowScale xScale
// f32[M,K/XGroup] or f32[M], with YGroup yScale f32[M,N/YGroup], then the operands of the epilogue.
// Grid and shared memory: as linear_tma; block: LinearInt8Tma<C>::threads. Bytes: M K + N K +
// sizeof(Y) M N + scales and epilogue operands; operations: 2 M N K.
#pragma once

#include "templates/linear/int8_tma/linear_int8_tma_groups.cuh"
#include "templates/linear/parts/linear_store.cuh"
#include "templates/linear/parts/linear_store_halves.cuh"
#include "templates/linear/parts/linear_store_quantised.cuh"
#include "templates/linear/parts/operands.cuh"

namespace gpt2c::tile {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// A block's tile: a producer's warp or warpgroup fills the ring, L::groups warpgroups multiply and
/// finish the tile.
template <typename C, typename Epilogue, typename Given> struct LinearInt8TmaTile {
  using L = LinearInt8Tma<C>;
  using Y = typename C::Y;
  using Ring = KTileRing<C::BM, C::BN, C::Stages, 4 * L::groups>;
  using Sums = ClusterSums<C::SplitK, L::consumers, L::share>;
  using Columns = float[maxInt(1, Epilogue::columnOperands)][C::BN];
  // Parts of split-K are equal: what the last has too many are zeros.
  static constexpr int kTiles = ceilDiv(ceilDiv(C::K, L::BK), C::SplitK);

  const TensorMap &xMap, &wMap, &rMap;
  Y *y;
  int m;
  const float *xScale;
  float *yScale;
  int tileM, tileN, split;
  Epilogue &epilogue;
  const Given &given;

  // Shared memory.
  Ring &ring;
  Sums &sums;
  Barrier &residualFull;
  Columns &columns;
  char *shared;
  char *residual;
  float *scalesOfTile;

  int group, warp, row0, col0, firstKTile;

  __device__ __forceinline__ void run(void *dynamicShared) {
    begin(dynamicShared);
    if (group == L::groups)
      produce();
    else
      consume();
  }

  __device__ __forceinline__ void begin(void *dynamicShared) {
    shared = reinterpret_cast<char *>(alignedKTiles(dynamicShared));
    // The compiler has to see that a warp agrees on its role, or it waits after every wgmma.
    group = __shfl_sync(fullWarp, threadIdx.x / 128, 0);
    warp = threadIdx.x / 32;
    row0 = tileM * C::BM;
    col0 = tileN * C::BN;
    firstKTile = split * kTiles;
    residual = shared + C::Stages * L::stageBytes;
    scalesOfTile = reinterpret_cast<float *>(residual + L::residualBytes);
    if (threadIdx.x == 0) {
      residualFull.init(1);
      if constexpr (C::SplitK > 1)
        sums.init();
      ring.init();
    }
    __syncthreads();
    if constexpr (C::SplitK > 1)
      sums.begin();
  }

  // The producer
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ void produce() {
    if constexpr (L::groups == 2)
      releaseRegisters<24>();
    if (threadIdx.x == L::consumers)
      fillRing();
    __syncwarp();
    if constexpr (C::SplitK > 1)
      sums.allHaveBegun();
  }
  /// By one thread. Unrolled, loops need more registers than a producer has.
  __device__ __forceinline__ void fillRing() {
    constexpr int first = minInt(C::Stages, kTiles);
#pragma unroll 1
    for (int kTile = 0; kTile < first; kTile++)
      loadW(kTile);
    if (tileM == 0)
#pragma unroll 1
      for (int kTile = first; kTile < kTiles; kTile++)
        prefetchBox(wMap, col0, column(kTile));
    waitForPredecessor();
    releaseSuccessor();
#pragma unroll 1
    for (int kTile = 0; kTile < first; kTile++)
      loadX(kTile);
    if constexpr (C::Residual)
      loadResidual();
#pragma unroll 1
    for (int kTile = first; kTile < kTiles; kTile++) {
      ring.empty[kTile % C::Stages].wait((kTile / C::Stages - 1) % 2);
      loadW(kTile);
      loadX(kTile);
    }
  }
  /// Maps count in halves.
  __device__ __forceinline__ int column(int kTile) const {
    return (firstKTile + kTile) * L::BK / 2;
  }
  __device__ __forceinline__ void loadX(int kTile) {
    ring.loadX(shared, kTile % C::Stages, xMap, row0, column(kTile));
  }
  __device__ __forceinline__ void loadW(int kTile) {
    ring.loadW(shared, kTile % C::Stages, wMap, col0, column(kTile));
  }
  __device__ __forceinline__ void loadResidual() {
    residualFull.expect(L::residualBytes);
#pragma unroll 1
    for (int i = 0; i < C::BN / 64; i++)
      copyBox(residual + i * C::BM * 128, rMap, row0, col0 + i * 64, residualFull);
  }

  // The consumers
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ void consume() {
    if constexpr (L::groups == 2)
      claimRegisters<240>();
    stageOperands();
    const typename Ring::Consumer consumer(ring, shared, group * 64);
    float acc[1][L::tiles][4] = {};
    if constexpr (C::XGroup > 0) {
      multiplyGroups(consumer, acc[0]);
    } else {
      float scale[2];
#pragma unroll
      for (int h = 0; h < 2; h++)
        scale[h] = C::RowScale ? xScale[rowOf(h)] : 1.0f;
      if constexpr (L::unit > 0) {
        multiplyGroups(consumer, acc[0]);
        if (finishRows(acc, acc[0], scale))
          return;
      } else {
        int products[L::tiles][4];
        multiply(consumer, products);
        if (finishRows(acc, products, scale))
          return;
      }
    }
    finish(acc);
  }

  /// Scales of groups and the epilogue's column operands, which wait in shared memory for the end.
  __device__ __forceinline__ void stageOperands() {
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
    epilogue.stageColumns(columns, col0, C::N, threadIdx.x, L::consumers);
    copyAsyncCommit();
    if constexpr (C::XGroup == 0)
      waitForPredecessor();
  }
  /// Waits for what stageOperands copies, but for the `Later` last groups of copies.
  template <int Later> __device__ __forceinline__ void waitForOperands() const {
    copyAsyncWait<Later>();
    asm volatile("bar.sync 1, %0;" ::"n"(L::consumers) : "memory");
  }
  __device__ __forceinline__ int warpRow() const { return row0 + warp * 16; }
  /// This lane's rows, h = 0 and 1.
  __device__ __forceinline__ int rowOf(int h) const {
    return min(warpRow() + h * 8 + (int)threadIdx.x % 32 / 4, m - 1);
  }

  /// One int32 sum over K.
  template <typename Consumer>
  __device__ __forceinline__ void multiply(const Consumer &consumer, int (&products)[L::tiles][4]) {
    overKTiles<kTiles, C::Stages>([&](int kTile, int stage, int parity) {
      consumer.wait(stage, parity);
      multiplyKTile<i8>(products, consumer.xAt(stage), consumer.wAt(stage), kTile > 0);
      wgmmaWait<1>();
      if (kTile > 0)
        consumer.handBack((stage + C::Stages - 1) % C::Stages);
    });
    wgmmaWait<0>();
    pinSums(products);
  }

  /// Sums of units of K, scaled where these are groups.
  template <typename Consumer>
  __device__ __forceinline__ void multiplyGroups(const Consumer &consumer,
                                                 float (&acc)[L::tiles][4]) {
    using Groups = LinearInt8TmaGroups<C, Consumer>;
    // A compiler that knows the number joins the loop over units with its end and waits for each
    // wgmma.
    int units = kTiles * Groups::parts;
    asm volatile("" : "+r"(units));
    if constexpr (C::XGroup > 0)
      waitForOperands<1>();
    const float *at = scalesOfTile + (warp * 16 + (int)threadIdx.x % 32 / 4) * L::scales;
    Groups groups(consumer, acc, at, firstKTile * Groups::parts, units);
    groups.nextScale(0);
    consumer.wait(0, 0);
    if constexpr (L::halves)
      groups.multiplyHalves();
    else
      groups.multiplyWhole();
  }

  // The epilogue
  // -----------------------------------------------------------------------------------------------

  /// The sums by the scales of their rows, in acc unless the tile is finished.
  template <typename Sum>
  __device__ __forceinline__ bool
  finishRows(float (&acc)[1][L::tiles][4], Sum (&products)[L::tiles][4], const float (&scale)[2]) {
    if constexpr (C::Gelu)
      finishGelu(products, scale);
    else if constexpr (C::RowScale || L::unit == 0)
      scaleSums(acc[0], products, scale);
    return C::Gelu;
  }
  template <typename Sum>
  __device__ __forceinline__ void finishGelu(Sum (&products)[L::tiles][4],
                                             const float (&scale)[2]) {
    waitForOperands<0>();
    if constexpr (Given::quantises)
      storeGeluBytes<L::whole>(products, scale, y, m, C::N, warpRow(), col0, epilogue, given);
    else
      storeGeluQuantised<C::YGroup, L::whole>(products, scale, y, yScale, m, C::N, warpRow(), col0,
                                              epilogue);
  }
  __device__ __forceinline__ void finish(float (&acc)[1][L::tiles][4]) {
    waitForOperands<0>();
    if constexpr (C::Residual) {
      residualFull.wait(0);
      storeOnto<C::BM>(acc[0], y, m, C::N, warpRow(), col0, residual + warp * 16 * 128, epilogue);
    } else if constexpr (C::YGroup > 0) {
      storeTileQuantised<C::YGroup>(acc, y, yScale, m, C::N, warpRow(), col0, epilogue);
    } else if constexpr (C::SplitK == 1 && Operand<Y>::scaled) {
      storeTileBytes<L::whole>(acc, y, m, C::N, warpRow(), col0, epilogue);
    } else if constexpr (C::SplitK == 1) {
      storeTile<1, 12, L::whole>(acc, y, m, C::N, warpRow(), col0, nullptr, nullptr, 0, epilogue);
    } else {
      float part[1][L::share][4];
      sums.allHaveBegun();
      sums.addUp(part[0], acc[0], shared + L::sumsAt, split);
      storeTile<1, 12, L::whole>(part, y, m, C::N, warpRow(), col0 + split * L::share * 8, nullptr,
                                 nullptr, 0, epilogue);
    }
  }
};

#endif

template <typename C, typename Epilogue, typename Given = quantised::AsTheyAre>
__device__ __forceinline__ void
linearInt8Tma(const TensorMap &xMap, const TensorMap &wMap, const TensorMap &rMap, typename C::Y *y,
              int m, GroupScales scales, TileIndex index, void *dynamicShared, Epilogue epilogue,
              const Given &given = {}) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const float *const xScale = scales.x;
  float *const yScale = scales.y;
  const int tileM = index.m, tileN = index.n, split = index.split;
  using Tile = LinearInt8TmaTile<C, Epilogue, Given>;
  __shared__ typename Tile::Ring ring;
  __shared__ typename Tile::Sums sums;
  __shared__ Barrier residualFull;
  __shared__ alignas(16) typename Tile::Columns columns;
  Tile tile = {xMap,  wMap,  rMap,     y,     m,    xScale, yScale,       tileM,
               tileN, split, epilogue, given, ring, sums,   residualFull, columns};
  tile.run(dynamicShared);
#else
  __trap();
#endif
}

} // namespace gpt2c::tile

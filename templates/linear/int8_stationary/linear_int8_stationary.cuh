// linear for many rows with one scale each, int8 operands, sm_90a alone:
// Y[M,N] = epilogue(scales * (X[M,K] * W[N,K]^T))
//
// A block keeps all of its 128 rows of X in shared memory and takes tiles of BN columns one after
// the other, so that of a product of 4096 rows only the weights go to an SM more than once. Two
// warpgroups take turns at the tiles, so that one multiplies while the other runs its epilogue;
// each has two sets of 64 rows, which keep the tensor cores busy alone, with exact int32
// accumulators in registers. A thread has TMA fill a ring of Stages k-tiles of W, 128 columns of K
// each, and one warp brings the epilogue's column operands to shared memory. K is at most 2^17, so
// that no accumulator overflows.
//
// RowScale: accumulators are multiplied by xScale of their row, every other scale is a matter of
// the epilogue. YGroup 64 or 128: Y is quantised (linear_store_quantised.cuh), one scale for each
// YGroup columns of a row, which lie in one tile; with Gelu behind gelu, both in fp16. YGroup 0 and
// Y of signed char: the epilogue ends in integers, or with Gelu `given` says what gelu's results
// become.
//
// Config: Y (float, __half or signed char, the last with YGroup), N, K (a multiple of 16), BN (at
// most 144, which wgmma lists and which divides N), Stages, RowScale, YGroup, Gelu.
// Kernel: xMap X i8[M,K] in boxes of 128 rows, wMap W i8[N,K] in boxes of BN rows, y Y[M,N], m,
// with RowScale xScale f32[M], with YGroup yScale f32[M,N/YGroup], then the operands of the
// epilogue. Grid: (ceil(M / 128), parts), of which each takes its share of the tiles; block:
// LinearInt8Stationary<C>::threads; dynamic shared: LinearInt8Stationary<C>::sharedBytes. Bytes:
// M K + N K + sizeof(Y) M N + scales and epilogue operands; operations: 2 M N K.
#pragma once

#include "templates/device/tma.cuh"
#include "templates/device/wgmma.cuh"
#include "templates/linear/parts/linear_store.cuh"
#include "templates/linear/parts/linear_store_halves.cuh"
#include "templates/linear/parts/linear_store_quantised.cuh"

namespace gpt2c {

template <typename C> struct LinearInt8Stationary {
  static constexpr int BM = 128, BK = 128, kTiles = ceilDiv(C::K, BK);
  static constexpr int threads = 384;
  static constexpr int xTileBytes = BM * BK, xBytes = kTiles * xTileBytes; // of X
  static constexpr int stageBytes = C::BN * BK;
  static constexpr int storeBytes = sizeof(typename C::Y) == 2 ? 8 * tile::halvesBytes : 0;
  // K-tiles begin at 1 KiB.
  static constexpr int sharedBytes = xBytes + C::Stages * stageBytes + storeBytes + 1024;
  static_assert(C::N % C::BN == 0 && C::BN % 16 == 0 && C::BN <= 144 && C::Stages >= 2);
  static_assert(C::YGroup == 0 || C::BN % maxInt(C::YGroup, 1) == 0);
};

namespace tile {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// The parameters of the kernel; `part` of `parts` of the tiles of the rows of tileM.
template <typename C, typename Epilogue, typename Given> struct LinearInt8StationaryParams {
  const TensorMap &xMap, &wMap;
  typename C::Y *y;
  int m;
  const float *xScale;
  float *yScale;
  int tileM, part, parts;
  void *dynamicShared;
  const Epilogue &epilogue;
  const Given &given;
};

/// A block's roles: a producer of the ring, a warp that stages operands, and two consumers.
template <typename C, typename Epilogue, typename Given> struct LinearInt8StationaryBlock {
  using L = LinearInt8Stationary<C>;
  /// Arrays of their own: as members of one object they cost the consumers a register, and a spill.
  struct Barriers {
    Barrier *full, *empty, *xFull;
    Barrier *staged, *used, *turn; // of each consumer
  };
  using Columns = float[2][maxInt(1, Epilogue::columnOperands)][C::BN];
  static constexpr int tilesN = C::N / C::BN;

  const LinearInt8StationaryParams<C, Epilogue, Given> p;
  // Shared memory.
  const Barriers barriers;
  Columns &columns;
  i8 *xs, *ws;

  int group, warp, first, tiles; // `tiles` from `first` on are this block's

  __device__ __forceinline__
  LinearInt8StationaryBlock(const LinearInt8StationaryParams<C, Epilogue, Given> &p,
                            const Barriers &barriers, Columns &columns)
      : p(p), barriers(barriers), columns(columns) {}

  __device__ __forceinline__ void run() {
    begin();
    if (group == 2) {
      releaseRegisters<24>();
      if (threadIdx.x == 256)
        produce();
      else if (warp == 9)
        stageOperands();
    } else {
      claimRegisters<240>();
      consume();
    }
  }

  __device__ __forceinline__ void begin() {
    xs = reinterpret_cast<i8 *>(alignedSlabs(p.dynamicShared)), ws = xs + L::xBytes;
    // The compiler has to see that a warp agrees on its role, or it waits after every wgmma.
    group = __shfl_sync(fullWarp, threadIdx.x / 128, 0);
    warp = threadIdx.x / 32;
    first = tilesN * p.part / p.parts;
    tiles = tilesN * (p.part + 1) / p.parts - first;
    if (threadIdx.x == 0) {
      for (int s = 0; s < C::Stages; s++) {
        barriers.full[s].init(1);
        barriers.empty[s].init(4);
      }
      for (int s = 0; s < L::kTiles; s++)
        barriers.xFull[s].init(1);
      for (int i = 0; i < 2; i++) {
        barriers.staged[i].init(32);
        barriers.used[i].init(4);
        barriers.turn[i].init(4);
      }
      fenceBarrierInit();
    }
    __syncthreads();
  }

  __device__ __forceinline__ void produce() {
    constexpr int ahead = minInt(C::Stages, L::kTiles);
    if (tiles > 0)
      for (int kTile = 0; kTile < ahead; kTile++)
        loadW(kTile, 0, kTile);
    waitForPredecessor();
    releaseSuccessor();
    for (int kTile = 0; kTile < L::kTiles; kTile++) {
      barriers.xFull[kTile].expect(L::xTileBytes);
      copyBox(xs + kTile * L::xTileBytes, p.xMap, p.tileM * L::BM, kTile * L::BK / 2,
              barriers.xFull[kTile]);
    }
    int stage = ahead % C::Stages, round = ahead / C::Stages;
    for (int tile = 0, kTile = ahead; tile < tiles; tile++, kTile = 0)
      for (; kTile < L::kTiles; kTile++) {
        if (round > 0)
          barriers.empty[stage].wait((round - 1) % 2);
        loadW(stage, tile, kTile);
        if (++stage == C::Stages)
          stage = 0, round++;
      }
  }
  /// Maps count in halves.
  __device__ __forceinline__ void loadW(int stage, int tile, int kTile) {
    barriers.full[stage].expect(L::stageBytes);
    copyBox(ws + stage * L::stageBytes, p.wMap, (first + tile) * C::BN, kTile * L::BK / 2,
            barriers.full[stage]);
  }

  __device__ __forceinline__ void stageOperands() {
    for (int tile = 0; tile < tiles; tile++) {
      if (tile > 1)
        barriers.used[tile % 2].wait((tile / 2 - 1) % 2);
      Epilogue epilogue = p.epilogue;
      epilogue.stageColumns(columns[tile % 2], (first + tile) * C::BN, C::N, threadIdx.x % 32, 32);
      copyAsyncCommit();
      copyAsyncWait<0>();
      barriers.staged[tile % 2].arrive();
    }
  }

  // The consumers
  // -----------------------------------------------------------------------------------------------

  using Products = int[2][C::BN / 8][4]; // rows 0 and 64 on

  __device__ __forceinline__ void consume() {
    waitForPredecessor();
    const int row0 = p.tileM * L::BM + warp % 4 * 16;
    float scale[2][2];
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int h = 0; h < 2; h++)
        scale[i][h] =
            C::RowScale ? p.xScale[min(row0 + i * 64 + h * 8 + (int)threadIdx.x % 32 / 4, p.m - 1)]
                        : 1.0f;
    const unsigned emptyAt = keptAddress(barriers.empty), fullAt = keptAddress(barriers.full);
    const u64 x = swizzledOperand(keptAddress(xs)), w = swizzledOperand(keptAddress(ws));
    for (int tile = group; tile < tiles; tile += 2) {
      Products products;
      if (tile > 0)
        barriers.turn[group].wait((tile - 1) / 2 % 2);
      multiply(products, tile, emptyAt, fullAt, x, w);
      finish(products, scale, tile, row0);
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
        barriers.xFull[kTile].wait(0);
      Barrier::waitAt(fullAt + stage * (int)sizeof(Barrier), parity);
      const u64 a = x + kTile * (L::xTileBytes / 16);
      if (kTile == L::kTiles - 1 && threadIdx.x % 32 == 0)
        barriers.turn[1 - group].arrive();
      multiplySlab(products[0], products[1], a, a + 64 * L::BK / 16,
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
  __device__ __forceinline__ void finish(Products &products, const float (&scale)[2][2], int tile,
                                         int row0) {
    const int col0 = (first + tile) * C::BN;
    Epilogue epilogue = p.epilogue;
    epilogue.stageColumns(columns[group], col0, C::N, C::BN, 1); // takes the places, copies nothing
    barriers.staged[group].wait(tile / 2 % 2);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      pinSums(products[i]);
      store(products[i], scale[i], row0 + i * 64, col0, epilogue);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0)
      barriers.used[group].arrive();
  }
  __device__ __forceinline__ void store(int (&products)[C::BN / 8][4], const float (&scale)[2],
                                        int row, int col0, Epilogue &epilogue) {
    using Y = typename C::Y;
    if constexpr (C::Gelu) {
      if constexpr (Given::quantises)
        storeGeluBytes<true>(products, scale, p.y, p.m, C::N, row, col0, epilogue, p.given);
      else
        storeGeluQuantised<C::YGroup>(products, scale, p.y, p.yScale, p.m, C::N, row, col0,
                                      epilogue);
    } else if constexpr (sizeof(Y) == 2) {
      storeHalves(products, scale, p.y, p.m, C::N, row, col0,
                  ws + C::Stages * L::stageBytes + warp * halvesBytes, epilogue);
    } else {
      float acc[1][C::BN / 8][4];
      scaleSums(acc[0], products, scale);
      if constexpr (C::YGroup > 0)
        storeTileQuantised<C::YGroup>(acc, p.y, p.yScale, p.m, C::N, row, col0, epilogue);
      else if constexpr (sizeof(Y) == 1)
        storeTileBytes<true>(acc, p.y, p.m, C::N, row, col0, epilogue);
      else
        storeTile<1, 3, true>(acc, p.y, p.m, C::N, row, col0, nullptr, nullptr, 0, epilogue);
    }
  }
};

#endif

template <typename C, typename Epilogue, typename Given = quantised::AsTheyAre>
__device__ __forceinline__ void
linearInt8Stationary(const TensorMap &xMap, const TensorMap &wMap, typename C::Y *y, int m,
                     const float *xScale, float *yScale, int tileM, int part, int parts,
                     void *dynamicShared, const Epilogue &epilogue, const Given &given = {}) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Block = LinearInt8StationaryBlock<C, Epilogue, Given>;
  __shared__ Barrier full[C::Stages], empty[C::Stages], xFull[LinearInt8Stationary<C>::kTiles];
  __shared__ Barrier staged[2], used[2], turn[2];
  __shared__ alignas(16) typename Block::Columns columns;
  Block roles(
      {xMap, wMap, y, m, xScale, yScale, tileM, part, parts, dynamicShared, epilogue, given},
      {full, empty, xFull, staged, used, turn}, columns);
  roles.run();
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c

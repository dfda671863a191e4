// Two warpgroups that take turns at tiles of 128 rows and BN columns of a product in int8, sm_90a
// alone: while one multiplies, with two sets of 64 rows, which keep the tensor cores busy alone,
// the other ends its tile. What belongs to columns a warp brings to shared memory meanwhile.
//
// RowScale: accumulators are multiplied by xScale of their row, every other scale is a matter of
// the epilogue. YGroup 64 or 128: Y is quantised (linear_store_quantised.cuh), one scale for each
// YGroup columns of a row, which lie in one tile; with Gelu behind gelu, both in fp16. YGroup 0 and
// Y of signed char: the epilogue ends in integers, or with Gelu `given` says what gelu's results
// become.
#pragma once

#include "templates/device/tma_pipeline.cuh"
#include "templates/device/wgmma.cuh"
#include "templates/linear/parts/linear_store.cuh"
#include "templates/linear/parts/linear_store_halves.cuh"
#include "templates/linear/parts/linear_store_quantised.cuh"

namespace gpt2c {

/// C: Y, N, BN, RowScale, YGroup, Gelu.
template <typename C> struct Int8Turns {
  static constexpr int BM = 128, BK = 128, threads = 384;
  /// Of shared memory, 128 for each row of a warp's lines.
  static constexpr int storeBytes = sizeof(typename C::Y) == 2 ? 8 * tile::halvesBytes : 0;
  static_assert(C::N % C::BN == 0 && C::BN % 16 == 0 && C::BN <= 192);
  static_assert(C::YGroup == 0 || C::BN % maxInt(C::YGroup, 1) == 0);
};

namespace tile {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

template <typename C, typename Epilogue, typename Given> struct Int8TurnsParams {
  typename C::Y *y;
  int m;
  const float *xScale;
  float *yScale;
  const Epilogue &epilogue;
  const Given &given;
};

template <typename C, typename Epilogue, typename Given> struct Int8TurnsBlock {
  using Params = Int8TurnsParams<C, Epilogue, Given>;
  /// Of each consumer. Arrays of their own: as members of one object they cost the consumers a
  /// register, and a spill.
  struct Barriers {
    Barrier *staged, *used, *turn;

    /// By one thread; a fence and a barrier of the block have to follow.
    __device__ __forceinline__ void init() const {
      for (int i = 0; i < 2; i++) {
        staged[i].init(32);
        used[i].init(4);
        turn[i].init(4);
      }
    }
  };
  using Columns = float[2][maxInt(1, Epilogue::columnOperands)][C::BN];
  using Products = int[2][C::BN / 8][4]; // rows 0 and 64 on
  using Scales = float[2][2];            // of rows 0 and 8 on of each

  const Params p;
  // Shared memory.
  const Barriers barriers;
  Columns &columns;

  __device__ __forceinline__ Int8TurnsBlock(const Params &p, const Barriers &barriers,
                                            Columns &columns)
      : p(p), barriers(barriers), columns(columns) {}

  /// By a warp, for turn after turn.
  __device__ __forceinline__ void stageColumns(int turn, int col0) const {
    if (turn > 1)
      barriers.used[turn % 2].wait((turn / 2 - 1) % 2);
    Epilogue epilogue = p.epilogue;
    epilogue.stageColumns(columns[turn % 2], col0, C::N, threadIdx.x % 32, 32);
    copyAsyncCommit();
    copyAsyncWait<0>();
    barriers.staged[turn % 2].arrive();
  }

  /// Consumer turn % 2 may multiply: a parity tells a phase from the next alone, so nobody waits
  /// for k-tiles before the other one has seen its last.
  __device__ __forceinline__ void waitForTurn(int turn) const {
    if (turn > 0)
      barriers.turn[turn % 2].wait((turn - 1) / 2 % 2);
  }
  /// A warp has seen the last k-tile of its turn.
  __device__ __forceinline__ void passTurn(int turn) const {
    if (threadIdx.x % 32 == 0)
      barriers.turn[1 - turn % 2].arrive();
  }

  /// row0: the warp's first.
  __device__ __forceinline__ void loadScales(Scales &scale, int row0) const {
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int h = 0; h < 2; h++)
        scale[i][h] =
            C::RowScale ? p.xScale[min(row0 + i * 64 + h * 8 + (int)threadIdx.x % 32 / 4, p.m - 1)]
                        : 1.0f;
  }
  /// The end of the tile of a turn; lines: halvesBytes of the warp.
  __device__ __forceinline__ void finish(Products &products, const Scales &scale, int turn,
                                         int row0, int col0, void *lines) const {
    Epilogue epilogue = p.epilogue;
    epilogue.stageColumns(columns[turn % 2], col0, C::N, C::BN, 1); // takes places, copies nothing
    barriers.staged[turn % 2].wait(turn / 2 % 2);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      pinSums(products[i]);
      store(products[i], scale[i], row0 + i * 64, col0, lines, epilogue);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0)
      barriers.used[turn % 2].arrive();
  }

private:
  __device__ __forceinline__ void store(int (&products)[C::BN / 8][4], const float (&scale)[2],
                                        int row, int col0, void *lines, Epilogue &epilogue) const {
    using Y = typename C::Y;
    if constexpr (C::Gelu) {
      if constexpr (Given::quantises)
        storeGeluBytes<true>(products, scale, p.y, p.m, C::N, row, col0, epilogue, p.given);
      else
        storeGeluQuantised<C::YGroup>(products, scale, p.y, p.yScale, p.m, C::N, row, col0,
                                      epilogue);
    } else if constexpr (sizeof(Y) == 2) {
      storeHalves(products, scale, p.y, p.m, C::N, row, col0, lines, epilogue);
    } else {
      float acc[1][C::BN / 8][4];
      scaleSums(acc[0], products, scale);
      if constexpr (C::YGroup > 0)
        storeTileQuantised<C::YGroup>(acc, p.y, p.yScale, p.m, C::N, row, col0, epilogue);
      else if constexpr (Operand<Y>::scaled)
        storeTileBytes<true>(acc, p.y, p.m, C::N, row, col0, epilogue);
      else
        storeTile<1, 3, true>(acc, p.y, p.m, C::N, row, col0, nullptr, nullptr, 0, epilogue);
    }
  }
};

#endif

} // namespace tile
} // namespace gpt2c

// What the computing warpgroups of a block of linear_tma and linear_tma_int8_weights do, sm_90a
// alone: sums over the k-tiles of a ring (tma_pipeline.cuh), over the blocks of a cluster that
// share K, and the end of the tile.
#pragma once

#include "templates/device/tma_pipeline.cuh"
#include "templates/device/wgmma.cuh"
#include "templates/linear/parts/linear_store.cuh"
#include "templates/linear/parts/linear_store_lines.cuh"

namespace gpt2c::tile {

/// Computes the tile at row0 and col0 of y, of which this is warpgroup `group`, from KTiles k-tiles
/// that others load. L: X, consumers, tiles, share and whole, as in LinearTma. `columns`: shared
/// memory for what the epilogue and the norm have for columns. With C::Lines rows leave in lines by
/// way of the shared memory of the last k-tile's X, of which a warp is done with its own rows.
template <typename C, typename L, int KTiles, typename Ring, typename Sums, int Operands,
          typename Epilogue, typename Norm, typename Statistics>
__device__ __forceinline__ void
computeTile(Ring &ring, Sums &sums, __half *shared, float (&columns)[Operands][C::BN],
            typename C::Y *y, int m, int row0, int col0, int split, int group, Epilogue &epilogue,
            Norm &norm, const Statistics &statistics) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  float acc[1][1][L::tiles][4];
  // What belongs to columns waits in shared memory for the end.
  epilogue.stageColumns(columns, col0, C::N, threadIdx.x, L::consumers);
  norm.stageColumns(columns + Epilogue::columnOperands, col0, C::N, threadIdx.x, L::consumers);
  copyAsyncCommit();
  waitForPredecessor();
  gpt2c::epilogue::begin(epilogue);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpRow = row0 + warp * 16;
  const typename Norm::Parts parts[2] = {norm.load(warpRow + lane / 4, m),
                                         norm.load(warpRow + lane / 4 + 8, m)};
  if constexpr (gpt2c::epilogue::isTurned<Epilogue>) { // while the first k-tile is on its way
    const int position = epilogue.rotation.positionOf(min(warpRow + lane % 16, m - 1));
    asm volatile("" ::"r"(position));
  }
  const typename Ring::Consumer consumer(ring, shared, group * 64);
  auto multiply = [&](int kTile, int stage, int parity) {
    consumer.wait(stage, parity);
    multiplyKTile<typename L::X>(acc[0][0], consumer.xAt(stage), consumer.wAt(stage), kTile > 0);
    wgmmaWait<1>();
    if (kTile > 0)
      consumer.handBack((stage + C::Stages - 1) % C::Stages);
  };
  overKTiles<KTiles, C::Stages>(multiply);
  wgmmaWait<0>();
  const typename Norm::Row rows[1][2] = {{norm.row(parts[0]), norm.row(parts[1])}};
  copyAsyncWait<0>();
  asm volatile("bar.sync 1, %0;" ::"n"(L::consumers) : "memory"); // all columns are there

  if constexpr (gpt2c::epilogue::isReceived<Epilogue>) {
    static_assert(!Norm::ofRows && !C::Lines);
    const gpt2c::epilogue::Finished none;
    if constexpr (C::SplitK == 1) {
      if (epilogue.template finish<typename C::Y>(acc[0][0], warpRow, col0, m, C::N))
        storeTile<1, 9, L::whole>(acc[0], y, m, C::N, warpRow, col0, nullptr, nullptr, 0, none,
                                  norm, rows, statistics);
    } else {
      float part[1][L::share][4];
      sums.allHaveBegun();
      sums.addUp(part[0], acc[0][0], reinterpret_cast<char *>(shared) + L::sumsAt, split);
      const int firstCol = col0 + split * L::share * 8;
      if (epilogue.template finish<typename C::Y>(part[0], warpRow, firstCol, m, C::N))
        storeTile<1, 9, L::whole>(part, y, m, C::N, warpRow, firstCol, nullptr, nullptr, 0, none,
                                  norm, rows, statistics);
    }
  } else if constexpr (C::Lines) {
    static_assert(C::SplitK == 1 && L::whole);
    char *const mine = reinterpret_cast<char *>(shared) +
                       (KTiles - 1) % C::Stages * Ring::kTileBytes + warp * halvesBytes;
    if constexpr (gpt2c::epilogue::isGated<Epilogue>)
      storeGatedLines<true>(acc, y, m, C::N, warpRow, col0, mine, epilogue, norm, rows);
    else
      storeLines<true>(acc, y, {m, C::N}, warpRow, col0, mine, epilogue, norm, rows, statistics);
  } else if constexpr (C::SplitK == 1) {
    storeTile<1, 9, L::whole>(acc[0], y, m, C::N, warpRow, col0, nullptr, nullptr, 0, epilogue,
                              norm, rows, statistics);
  } else {
    float part[1][L::share][4];
    sums.allHaveBegun();
    sums.addUp(part[0], acc[0][0], reinterpret_cast<char *>(shared) + L::sumsAt, split);
    const int firstCol = col0 + split * L::share * 8;
    storeTile<1, 9, L::whole>(part, y, m, C::N, warpRow, firstCol, nullptr, nullptr, 0, epilogue,
                              norm, rows, statistics);
  }
#endif
}

} // namespace gpt2c::tile

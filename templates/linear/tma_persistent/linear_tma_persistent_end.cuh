// The launch behind a product whose epilogue is Scattered (templates/linear/parts/scattered.cuh).
// Where ranks share a device it ends the tiles, of all rows; else it waits until the other ranks
// have ended theirs.
//
// Config, epilogue, statistics: as of linear_tma_persistent.cuh.
// Kernel: y Y[M,N], m, then the operands of the epilogue and of the statistics.
// Grid: at most exchangeBlocks, since all have to run at the same time; block: 256; dynamic shared:
// 8 halvesBytes.
#pragma once

#include "templates/linear/parts/scattered.cuh"
#include "templates/linear/tma_persistent/linear_tma_persistent.cuh"

namespace gpt2c::tile {

template <typename C, typename Epilogue, typename Statistics>
__device__ __forceinline__ void linearTmaPersistentEnd(typename C::Y *y, int m, void *dynamicShared,
                                                       Epilogue epilogue,
                                                       const Statistics &statistics) {
  using L = LinearTmaPersistent<C>;
  constexpr int ranks = Epilogue::ranks, tiles = C::BN / 8;
  Exchange *const e = epilogue.exchange;
  exchanging::waitAndRelease(e->apart);
  const int warp = threadIdx.x / 32, rank = e->rank;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  epilogue.round = exchanging::peek(&e->sums); // the product has ended it
  if (e->apart) {
    if (threadIdx.x < ranks && (int)threadIdx.x != rank)
      exchanging::awaitNumber(e, SentSums::number(e, rank, (int)threadIdx.x), epilogue.round,
                              (int)threadIdx.x);
    return;
  }
  constexpr int tilesN = ceilDiv(C::N, C::BN), unitsOfTile = L::BM / 16;
  const int units = ceilDiv(m, L::BM) * tilesN * unitsOfTile;
  const NoNorm::Row rows[1][2] = {};
#pragma unroll 1
  for (int unit = blockIdx.x * 8 + warp; unit < units; unit += gridDim.x * 8) {
    const int tile = unit / unitsOfTile, row0 = tile / tilesN * L::BM + unit % unitsOfTile * 16,
              col0 = tile % tilesN * C::BN;
    float acc[1][1][tiles][4];
    epilogue.template addOthers<typename C::Y, false>(acc[0][0], unit);
    storeLines<L::whole>(acc, y, {m, C::N}, row0, col0,
                         static_cast<char *>(dynamicShared) + warp * halvesBytes, epilogue.before,
                         NoNorm{}, rows, statistics);
  }
#else
  __trap();
#endif
}

} // namespace gpt2c::tile

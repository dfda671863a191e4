// Sums over ranks of which each rank ends some rows for all: as a reduce-scatter and an all-gather,
// whose halves lie at the end of one product and the beginning of the next.
//
// Rows of tiles are divided among ranks. A product computes the tiles of other ranks' rows first
// and sends each to its rank, which adds all as it ends its own: templates/linear/parts/
// scattered.cuh. The results go to all ranks, and the product behind begins with its own rank's
// rows, while those of others are on their way.
//
// Sums lie where products send them (sums.cuh): in a round from each rank, as lanes of a warp have
// 16 rows of a tile of wgmma, 16 bytes of each lane behind those of its neighbours, and for each
// such unit the number of the last round that has come.
//
// A rank's number of a round (SentSums::number) says here that it has ended its rows, on all ranks:
// so it has read what others sent. Who sends in the next round has seen every other's.
#pragma once

#include "templates/exchange/sums.cuh"
#include "templates/exchange/tiles.cuh"

namespace gpt2c::tile {

/// Rows of tiles: rank r ends those from first(r) to first(r + 1).
struct RowShares {
  int tiles, ranks;

  __device__ __forceinline__ int first(int rank) const { return (int)((i64)tiles * rank / ranks); }
  __device__ __forceinline__ int owner(int tile) const {
    return (int)(((i64)(tile + 1) * ranks - 1) / tiles);
  }
};

/// The partial sums of 16 rows and `Tiles` column tiles of 8.
template <int Tiles> struct SumUnits {
  static constexpr int vectors = ceilDiv(Tiles, 2);

  /// In the memory of rank `of`, from rank `from`; of the vector v of a lane 32 v behind it.
  static __device__ __forceinline__ uint4 *at(const Exchange *e, int of, int from, unsigned round,
                                              int unit) {
    return (uint4 *)(e->slots[of] + SentSums::offset(e, from, round)) + (i64)unit * vectors * 32 +
           threadIdx.x % 32;
  }
  static __device__ __forceinline__ unsigned *number(const Exchange *e, int of, int from,
                                                     int unit) {
    const u64 behind = SentSums::numbersBytes + 2 * (u64)e->ranks * e->sumsBytes;
    return (unsigned *)(e->slots[of] + e->sumsAt + behind + from * (e->sumsBytes / 64)) + unit;
  }
};

namespace exchanging {

/// Waits until rank `from` has put that number there, or a later one. All lanes of a warp call, and
/// see then what it stored before.
__device__ __forceinline__ void awaitReached(Exchange *e, const unsigned *p, unsigned number,
                                             int from) {
  if (threadIdx.x % 32 == 0) {
    Patience patience;
#pragma unroll 1
    for (;;) {
      unsigned v;
      asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
      if ((int)(v - number) >= 0 || patience.ends(e, number, from))
        break;
    }
  }
  __syncwarp();
}

} // namespace exchanging

/// Rows of a product that all ranks have ended, each its share: its own first. What a thread does
/// about them; where ranks share a device a launch in front has ended all of them.
struct SharedRows {
  static constexpr bool areShared = true;
  Exchange *exchange;
  int awaited = -1; ///< the last rank that was waited for

  __device__ __forceinline__ int first(int tiles) const {
    return RowShares{tiles, exchange->ranks}.first(exchange->rank);
  }
  /// To be called behind waitForPredecessor(), in the order of the tiles. TMA may read them then.
  __device__ __forceinline__ void await(int tile, int tiles) {
    const int owner = RowShares{tiles, exchange->ranks}.owner(tile), rank = exchange->rank;
    if (owner == rank || owner == awaited || !exchange->apart)
      return;
    awaited = owner;
    exchanging::awaitNumber(exchange, SentSums::number(exchange, rank, owner),
                            exchanging::peek(&exchange->sums), owner);
    asm volatile("fence.proxy.async;" ::: "memory");
  }
};

} // namespace gpt2c::tile

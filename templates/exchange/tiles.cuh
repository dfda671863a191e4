// Many words go in tiles: plain stores of 16 bytes, and one number behind all of a tile. That is
// half as many bytes as words with numbers of their own, and some microseconds more until the first
// arrives; a block sends a tile before it waits for the one in front.
//
// There are four slots for a block. It sends its tile t when it has seen that every other rank's
// block has sent tile t - 2, and so has read tile t - 4.
#pragma once

#include "templates/exchange/exchange.cuh"

namespace gpt2c::tile {

/// Where tiles and their numbers lie in the memory of a rank, behind the slots of words: host and
/// devices count alike (runtime/cuda/ExchangeRecord.h).
template <int Ranks> struct Tiles {
  static constexpr int vectors = 4; ///< of 16 bytes, of a thread in a tile
  static constexpr int words = exchangeThreads * vectors * 4, slots = 4;
  static constexpr i64 places = (i64)slots * Ranks * exchangeBlocks;

  uint4 *data;
  unsigned *numbers; ///< of the tile in each slot
  unsigned *sent;    ///< tiles of each block, of all launches: the rank's own
  __device__ __forceinline__ Tiles(u64 slotsOfRank, i64 wordsOfSlot)
      : data((uint4 *)(slotsOfRank + 2 * Ranks * wordsOfSlot * 8)),
        numbers((unsigned *)(data + places * (words / 4))), sent(numbers + places) {}
  /// Of this block's tile of that number, from a rank.
  __device__ __forceinline__ i64 place(unsigned number, int from) const {
    return ((i64)(number % slots) * Ranks + from) * exchangeBlocks + blockIdx.x;
  }
  __device__ __forceinline__ uint4 *tile(unsigned number, int from) const {
    return data + place(number, from) * (words / 4);
  }
};

namespace exchanging {

__device__ __forceinline__ void releaseNumber(unsigned *p, unsigned v) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
/// Whether rank `from` has put the number there; all that it stored before is seen then.
__device__ __forceinline__ bool awaitNumber(Exchange *e, const unsigned *p, unsigned number,
                                            int from) {
  Patience patience;
#pragma unroll 1
  for (;;) {
    unsigned v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    if (v == number)
      return true;
    if (patience.ends(e, number, from))
      return false;
  }
}

} // namespace exchanging

/// Exchanges `count` words in tiles, four at a time, for count % 4 == 0: `mine(i)` are four words
/// of this rank as a uint4, `use(i, words, inside)` gets those of all ranks, in their order, in
/// whole warps, of which some lanes may not be inside.
///
/// Config: Ranks. Grid: the same on all ranks, of at most exchangeBlocks, all of which run at the
/// same time; block: exchangeThreads.
template <typename C, typename Mine, typename Use>
__device__ __forceinline__ void exchangeTiles(Exchange *e, i64 count, const Mine &mine,
                                              const Use &use) {
  using Memory = Tiles<C::Ranks>;
  const int rank = e->rank;
  const Memory own(e->slots[rank], e->words);
  exchanging::waitAndRelease(e->apart);
  const unsigned before = exchanging::peek(own.sent + blockIdx.x);
  const i64 all = (count + Memory::words - 1) / Memory::words, step = gridDim.x;
  unsigned tiles = blockIdx.x < all ? (unsigned)((all - blockIdx.x + step - 1) / step) : 0;
  if (__syncthreads_count(exchanging::peek(&e->failed)) > 0)
    tiles = 0;
  auto forVectors = [&](unsigned t, auto f) {
    const i64 first = (blockIdx.x + t * step) * Memory::words;
#pragma unroll
    for (int j = 0; j < Memory::vectors; j++) {
      const int vector = j * exchangeThreads + (int)threadIdx.x;
      if (first + vector / 32 * 128 < count)
        f(first + vector * 4, vector, first + vector * 4 < count);
    }
  };
  auto send = [&](unsigned t) {
    const unsigned number = before + 1 + t;
    forVectors(t, [&](i64 i, int vector, bool inside) {
      if (!inside)
        return;
      const uint4 v = mine(i);
#pragma unroll
      for (int to = 0; to < C::Ranks; to++)
        if (to != rank)
          Memory(e->slots[to], e->words).tile(number, rank)[vector] = v;
    });
    __syncthreads();
    if (threadIdx.x < C::Ranks && (int)threadIdx.x != rank) {
      const Memory there(e->slots[threadIdx.x], e->words);
      exchanging::releaseNumber(there.numbers + there.place(number, rank), number);
    }
  };
  if (tiles > 0)
    send(0);
#pragma unroll 1
  for (unsigned t = 0; t < tiles; t++) {
    if (t + 1 < tiles)
      send(t + 1);
    const unsigned number = before + 1 + t;
    bool lost = false;
    if (threadIdx.x < C::Ranks && (int)threadIdx.x != rank)
      lost = !exchanging::awaitNumber(e, own.numbers + own.place(number, (int)threadIdx.x), number,
                                      (int)threadIdx.x);
    if (__syncthreads_count(lost) > 0)
      break;
    forVectors(t, [&](i64 i, int vector, bool inside) {
      uint4 words[C::Ranks] = {};
#pragma unroll
      for (int from = 0; from < C::Ranks; from++)
        if (inside)
          words[from] = from == rank ? mine(i) : __ldcg(own.tile(number, from) + vector);
      use(i, words, inside);
    });
  }
  if (threadIdx.x == 0)
    own.sent[blockIdx.x] = before + tiles;
}

} // namespace gpt2c::tile

// Partial sums that tiles of a product send each other over ranks (templates/linear/parts/
// received.cuh): pairs of neighbouring columns in 16 bits each, every pair with the number of its
// round in 8 bytes, in the slots of words (exchange.cuh). As lanes of a warp have a tile of
// mma.m16n8, so that a warp's stores are 512 bytes behind each other:
// u64[rows / 16][N / 8][32 lanes][2], the latter for rows r and r + 8.
#pragma once

#include "templates/device/mma.cuh"
#include "templates/exchange/exchange.cuh"

namespace gpt2c::tile {

namespace exchanging {

/// Two words of 8 bytes, each of which arrives whole or not at all.
__device__ __forceinline__ void storeWords(u64 *p, u64 a, u64 b) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(a), "l"(b) : "memory");
}
__device__ __forceinline__ void loadWords(const u64 *p, u64 &a, u64 &b) {
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(a), "=l"(b)
               : "l"(p)
               : "memory");
}

} // namespace exchanging

struct SumPairs {
  static constexpr int ofTile = 64; ///< words of 16 x 8 sums

  /// The word of the pair that begins at an even column, of sums [., n].
  static __device__ __forceinline__ i64 place(int row, int col, int n) {
    return ((i64)(row / 16) * (n / 8) + col / 8) * ofTile + (row % 8 * 4 + col % 8 / 2) * 2 +
           row % 16 / 8;
  }
  /// Where those of rank `from` begin in a rank's memory.
  static __device__ __forceinline__ i64 first(const Exchange *e, int from, unsigned round) {
    return ((i64)(round % 2) * e->ranks + from) * e->words;
  }
};

} // namespace gpt2c::tile

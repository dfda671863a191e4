// Where partial sums lie that products send to all ranks as their tiles end: in the memory of each
// rank, behind its slots and tiles, from every rank two places that rounds take in turn, and the
// number of the round that is whole.
//
// A product of round s + 2 writes where round s was: its rank has seen every other's number of
// round s + 1, and they sent that when their launches of round s had ended.
#pragma once

#include "templates/exchange/exchange.cuh"

namespace gpt2c::tile {

struct SentSums {
  /// A line for the number of each rank: host and devices count alike
  /// (runtime/cuda/ExchangeRecord.h).
  static constexpr int numberBytes = 128, numbersBytes = 8 * numberBytes;

  /// In the memory of rank `of`: the number of the last round that `from` has sent all of.
  static __device__ __forceinline__ unsigned *number(const Exchange *e, int of, int from) {
    return (unsigned *)(e->slots[of] + e->sumsAt + from * numberBytes);
  }
  /// Likewise, of its sums in that round, from the beginning of a rank's memory.
  static __device__ __forceinline__ u64 offset(const Exchange *e, int from, unsigned round) {
    return e->sumsAt + numbersBytes + ((round % 2) * e->ranks + from) * e->sumsBytes;
  }
};

} // namespace gpt2c::tile

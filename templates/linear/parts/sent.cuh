// An epilogue whose results are partial sums of a rank: they are stored in the memory of all ranks,
// its own included, for the launch of all_reduce behind (templates/exchange/all_reduce_sent.cuh),
// while other tiles are still computed.
#pragma once

#include "templates/exchange/sums.cuh"
#include "templates/linear/parts/passed_on.cuh"

namespace gpt2c::epilogue {

template <typename Before, int Ranks> struct Sent : PassedOn<Before> {
  using Sends = void;
  tile::Exchange *exchange;
  u64 offset; ///< of the rank's sums in the memory of each; known behind begin()

  /// To be called behind waitForPredecessor().
  __device__ __forceinline__ void begin() {
    const unsigned round = tile::exchanging::peek(&exchange->sums) + 1;
    offset = tile::SentSums::offset(exchange, exchange->rank, round);
  }
  /// put(y) for y[m,n] of each rank.
  template <typename Y, typename Put>
  __device__ __forceinline__ void forRanks(Y *, const Put &put) const {
#pragma unroll
    for (int to = 0; to < Ranks; to++)
      put((Y *)(exchange->slots[to] + offset));
  }
};

} // namespace gpt2c::epilogue

// An epilogue whose results are partial sums of a rank: they are stored in the memory of all ranks,
// its own included, for the launch of all_reduce behind (templates/exchange/all_reduce_sent.cuh),
// while other tiles are still computed.
#pragma once

#include "templates/exchange/sums.cuh"

namespace gpt2c::epilogue {

template <typename Before, int Ranks> struct Sent {
  using Sends = void;
  static constexpr int columnOperands = Before::columnOperands;
  Before before;
  tile::Exchange *exchange;
  u64 offset; ///< of the rank's sums in the memory of each; known behind begin()

  template <int V> using Operands = typename Before::template Operands<V>;
  template <int V> __device__ __forceinline__ Operands<V> load(i64 row, i64 col) const {
    return before.template load<V>(row, col);
  }
  template <int V>
  __device__ __forceinline__ void apply(float (&v)[V], const Operands<V> &o) const {
    before.apply(v, o);
  }
  template <int V>
  __device__ __forceinline__ void operator()(float (&v)[V], i64 row, i64 col) const {
    before(v, row, col);
  }
  __device__ __forceinline__ void prefetchColumn(i64 col) const { before.prefetchColumn(col); }
  template <int W>
  __device__ __forceinline__ void stageColumns(float (*shared)[W], int col0, int count, int thread,
                                               int threads) {
    before.stageColumns(shared, col0, count, thread, threads);
  }

  /// To be called behind waitForPredecessor().
  __device__ __forceinline__ void begin() {
    const unsigned round = tile::exchanging::peek(&exchange->sums) + 1;
    offset = tile::SentSums::offset(exchange, exchange->rank, round);
  }
  /// put(y) for y[m,n] of each rank.
  template <typename Y, typename Put>
  __device__ __forceinline__ void forRanks(const Put &put) const {
#pragma unroll
    for (int to = 0; to < Ranks; to++)
      put((Y *)(exchange->slots[to] + offset));
  }
};

} // namespace gpt2c::epilogue

// An epilogue of partial sums of a rank whose tiles exchange them with the same tiles of the other
// ranks, and add them in the order of ranks before anything else is done to them. All tiles of the
// launch run at the same time, so those of other ranks come. Each rank rounds its sums to the
// type of the result.
//
// Where ranks share a device, tiles that wait would keep out those that they wait for: they send
// alone, and a launch of few blocks behind does the rest (all_reduce_received.cuh).
#pragma once

#include "templates/exchange/pairs.cuh"
#include "templates/linear/parts/epilogue.cuh"

namespace gpt2c::epilogue {

template <typename Before, int Ranks> struct Received {
  using Receives = void;
  static constexpr int columnOperands = Before::columnOperands;
  Before before; ///< what is done to the sum over ranks
  tile::Exchange *exchange;
  unsigned round; ///< known behind begin()

  template <int W>
  __device__ __forceinline__ void stageColumns(float (*shared)[W], int col0, int count, int thread,
                                               int threads) {
    before.stageColumns(shared, col0, count, thread, threads);
  }
  /// To be called behind waitForPredecessor().
  __device__ __forceinline__ void begin() { round = tile::exchanging::peek(&exchange->round) + 1; }

  /// Makes a warp's sums of rows row0 and columns col0 on, as mma.m16n8 leaves them, results of the
  /// type Y; false: a launch behind does. Warps of a block call it behind a barrier of all that
  /// have called begin(); a lane has no row at m or behind it, nor columns at n, of which there is
  /// a multiple of 8.
  template <typename Y, int Tiles>
  __device__ __forceinline__ bool finish(float (&acc)[Tiles][4], int row0, int col0, int m,
                                         int n) const {
    using tile::SumPairs;
    const int lane = threadIdx.x % 32, row = row0 + lane / 4, col = col0 + lane % 4 * 2;
    const int rank = exchange->rank;
    const bool apart = exchange->apart;
    const i64 place = SumPairs::place(row, col, n);
    auto isThere = [&](int j) { return row < m && col + j * 8 < n; };
    unsigned own[Tiles][2];
#pragma unroll
    for (int j = 0; j < Tiles; j++)
#pragma unroll
      for (int h = 0; h < 2; h++)
        own[j][h] = Mma<Y>::pack(acc[j][h * 2], acc[j][h * 2 + 1]);
    const u64 number = (u64)round << 32;
#pragma unroll
    for (int to = 0; to < Ranks; to++) {
      u64 *at = (u64 *)exchange->slots[to] + SumPairs::first(exchange, rank, round) + place;
      if (to != rank || !apart)
#pragma unroll
        for (int j = 0; j < Tiles; j++)
          if (isThere(j))
            tile::exchanging::storeWords(at + j * SumPairs::ofTile, number | own[j][0],
                                         number | own[j][1]);
    }
    if (!apart)
      return false;
    // No thread of the block reads the round any more.
    unsigned arrived = 0;
    if (threadIdx.x == 0)
      arrived = atomicAdd(&exchange->arrived, 1u);
    // What is added comes while the sums of other ranks do.
    typename Before::template Operands<2> operands[Tiles][2];
#pragma unroll
    for (int j = 0; j < Tiles; j++)
#pragma unroll
      for (int h = 0; h < 2; h++)
        operands[j][h] =
            before.template load<2>((i64)min(row + h * 8, m - 1), (i64)min(col + j * 8, n - 2));
#pragma unroll
    for (int from = 0; from < Ranks; from++) {
      unsigned got[Tiles][2];
#pragma unroll
      for (int j = 0; j < Tiles; j++)
        got[j][0] = own[j][0], got[j][1] = own[j][1];
      if (from != rank)
        receive(got, SumPairs::first(exchange, from, round) + place, from, isThere);
#pragma unroll
      for (int j = 0; j < Tiles; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const float2 v = Mma<Y>::unpack(got[j][h]);
          acc[j][h * 2] = from == 0 ? v.x : acc[j][h * 2] + v.x;
          acc[j][h * 2 + 1] = from == 0 ? v.y : acc[j][h * 2 + 1] + v.y;
        }
    }
#pragma unroll
    for (int j = 0; j < Tiles; j++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float v[2] = {acc[j][h * 2], acc[j][h * 2 + 1]};
        before.apply(v, operands[j][h]);
        acc[j][h * 2] = v[0];
        acc[j][h * 2 + 1] = v[1];
      }
    if (threadIdx.x == 0 && arrived == gridDim.x * gridDim.y * gridDim.z - 1) {
      exchange->arrived = 0;
      exchange->round = round;
    }
    return true;
  }

private:
  /// All loads are on their way at once, again and again until all have the number. After a
  /// failure the words are anything.
  template <int Tiles, typename IsThere>
  __device__ __forceinline__ void receive(unsigned (&got)[Tiles][2], i64 place, int from,
                                          const IsThere &isThere) const {
    const u64 *at = (const u64 *)exchange->slots[exchange->rank] + place;
    tile::exchanging::Patience patience;
#pragma unroll 1
    for (;;) {
      u64 words[Tiles][2];
#pragma unroll
      for (int j = 0; j < Tiles; j++) {
        words[j][0] = words[j][1] = (u64)round << 32;
        if (isThere(j))
          tile::exchanging::loadWords(at + j * tile::SumPairs::ofTile, words[j][0], words[j][1]);
      }
      bool all = true;
#pragma unroll
      for (int j = 0; j < Tiles; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          all &= (unsigned)(words[j][h] >> 32) == round;
          got[j][h] = (unsigned)words[j][h];
        }
      if (all || patience.ends(exchange, round, from))
        return;
    }
  }
};

} // namespace gpt2c::epilogue

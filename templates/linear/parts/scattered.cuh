// An epilogue of partial sums of a rank, of which each rank ends some rows of tiles for all
// (templates/exchange/row_shares.cuh): sums of another rank's rows go to that rank; those of its
// own get the others', in the order of ranks, before anything else is done to them, and results go
// to all ranks. Each rank rounds its sums to the type of the result.
//
// Where ranks share a device, tiles that wait would keep out those that they wait for: all sums go
// to all ranks, and a launch of few blocks behind ends them
// (templates/linear/tma_persistent/linear_tma_persistent_end.cuh).
#pragma once

#include "templates/device/mma.cuh"
#include "templates/exchange/row_shares.cuh"
#include "templates/linear/parts/passed_on.cuh"
#include "templates/linear/parts/row_statistics.cuh"

namespace gpt2c::epilogue {

/// Statistics of rows, on all ranks.
template <typename Epilogue> struct StatisticsOfRanks {
  float2 *to;
  const Epilogue &epilogue;

  template <int Width, int Tiles>
  __device__ __forceinline__ void store(const float (&acc)[Tiles][4], int h, int row, int col,
                                        int m) const {
    const float2 s = RowStatistics::part<Width>(acc, h);
    if (threadIdx.x % 4 == 0 && row < m)
      epilogue.forRanks(to + (i64)(col / Width) * m + row, [&](float2 *at) { *at = s; });
  }
};

template <typename Before, int Ranks> struct Scattered : PassedOn<Before> {
  using Scatters = void;
  static constexpr int ranks = Ranks;
  tile::Exchange *exchange;
  unsigned round;   ///< known behind begin()
  u64 there[Ranks]; ///< of each rank: what activations lie behind this one's; behind locate()

  /// To be called behind waitForPredecessor().
  __device__ __forceinline__ void begin() { round = tile::exchanging::peek(&exchange->sums) + 1; }
  /// Before results are stored. There are no registers for it beside a product.
  __device__ __forceinline__ void locate() {
#pragma unroll
    for (int r = 0; r < Ranks; r++)
      there[r] = exchange->arena[r] - exchange->arena[exchange->rank];
  }
  /// The first row of tiles that is computed.
  __device__ __forceinline__ int first(int tiles) const {
    const int next = exchange->rank + 1;
    return next == Ranks ? 0 : tile::RowShares{tiles, Ranks}.first(next);
  }
  /// put(y) for what lies there on each rank.
  template <typename T, typename Put>
  __device__ __forceinline__ void forRanks(T *y, const Put &put) const {
#pragma unroll
    for (int r = 0; r < Ranks; r++)
      put((T *)((u64)y + there[r]));
  }
  __device__ __forceinline__ NoStatistics onRanks(NoStatistics s) const { return s; }
  __device__ __forceinline__ StatisticsOfRanks<Scattered> onRanks(RowStatistics s) const {
    return {s.to, *this};
  }

  /// A warp's sums of the row `row` of tiles, of `rows`, become those of all ranks; false: another
  /// launch ends them. Y: the type of results.
  template <typename Y, int Tiles>
  __device__ __forceinline__ bool addUp(float (&acc)[Tiles][4], int unit, int row, int rows) const {
    const int rank = exchange->rank, owner = tile::RowShares{rows, Ranks}.owner(row);
    // The compiler has to see that a warp agrees, or it waits after every wgmma.
    const bool apart = __shfl_sync(fullWarp, exchange->apart, 0) != 0,
               isMine = __shfl_sync(fullWarp, apart && owner == rank, 0);
#pragma unroll
    for (int to = 0; to < Ranks; to++)
      if (!apart || (to == owner && !isMine))
        send<Y>(acc, to, unit);
    if (isMine)
      addOthers<Y>(acc, unit);
    return isMine;
  }
  template <typename Y, int Tiles>
  __device__ __forceinline__ void send(const float (&acc)[Tiles][4], int to, int unit) const {
    using Units = tile::SumUnits<Tiles>;
    const int rank = exchange->rank;
    uint4 *at = Units::at(exchange, to, rank, round, unit);
#pragma unroll
    for (int v = 0; v < Units::vectors; v++)
      at[v * 32] = rounded<Y>(acc, v);
    __syncwarp();
    if (threadIdx.x % 32 == 0)
      tile::exchanging::releaseNumber(Units::number(exchange, to, rank, unit), round);
  }
  /// Makes them those of all ranks; without Own this one's come from memory, too.
  template <typename Y, bool Own = true, int Tiles>
  __device__ __forceinline__ void addOthers(float (&acc)[Tiles][4], int unit) const {
    using Units = tile::SumUnits<Tiles>;
    const int rank = exchange->rank;
    const uint4 *at[Ranks];
#pragma unroll
    for (int from = 0; from < Ranks; from++) {
      at[from] = Units::at(exchange, rank, from, round, unit);
      if (!Own || from != rank)
        tile::exchanging::awaitReached(exchange, Units::number(exchange, rank, from, unit), round,
                                       from);
    }
#pragma unroll
    for (int v = 0; v < Units::vectors; v++) {
      uint4 own = {};
      if constexpr (Own)
        own = rounded<Y>(acc, v);
#pragma unroll
      for (int from = 0; from < Ranks; from++) {
        const uint4 w = Own && from == rank ? own : __ldcg(at[from] + v * 32);
        const unsigned pairs[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
          if (2 * v + i / 2 >= Tiles)
            continue;
          float *sum = &acc[2 * v + i / 2][i % 2 * 2];
          const float2 add = Mma<Y>::unpack(pairs[i]);
          sum[0] = from == 0 ? add.x : sum[0] + add.x;
          sum[1] = from == 0 ? add.y : sum[1] + add.y;
        }
      }
    }
  }
  /// A warp has ended its tiles; `warps` of the launch do so. The last one tells all ranks.
  __device__ __forceinline__ void end(unsigned warps) const {
    __syncwarp();
    if (threadIdx.x % 32 != 0)
      return;
    __threadfence_system();
    if (atomicAdd(&exchange->arrived, 1u) != warps - 1)
      return;
    exchange->arrived = 0;
    exchange->sums = round;
    if (!exchange->apart)
      return;
    __threadfence_system();
    const int rank = exchange->rank;
#pragma unroll
    for (int to = 0; to < Ranks; to++)
      if (to != rank)
        tile::exchanging::releaseNumber(tile::SentSums::number(exchange, to, rank), round);
  }

private:
  /// What a lane sends of two column tiles.
  template <typename Y, int Tiles>
  static __device__ __forceinline__ uint4 rounded(const float (&acc)[Tiles][4], int v) {
    const float *a = acc[2 * v];
    uint4 w = {Mma<Y>::pack(a[0], a[1]), Mma<Y>::pack(a[2], a[3]), 0, 0};
    if (2 * v + 1 < Tiles) {
      const float *b = acc[2 * v + 1 < Tiles ? 2 * v + 1 : 0];
      w.z = Mma<Y>::pack(b[0], b[1]);
      w.w = Mma<Y>::pack(b[2], b[3]);
    }
    return w;
  }
};

} // namespace gpt2c::epilogue

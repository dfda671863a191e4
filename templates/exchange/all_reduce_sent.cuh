// all_reduce of what the product in front has sent to all ranks (templates/linear/parts/sent.cuh):
// y = ((sum of rank 0 + sum of rank 1) + ..) + bias + residual, in fp32, rounded once. All ranks
// get the same bits.
//
// The product has ended, so one number tells the other ranks that all of it is there.
//
// Config: X (of the sums as they were sent), Y, B (bias), R (residual); N (columns, a multiple of
//   8); Bias, Residual; Statistics (of parts of 32 columns, which divide N); Ranks.
// Kernel: exchange, bias B[N] or null, residual R[rows,N] or null, y Y[rows,N], statistics
//   f32x2[N/32,rows] or null, rows.
// Grid: any number of blocks of exchangeThreads, all of which run at the same time; where ranks
//   share a device exchangeBlocks of them work.
// Bytes: rows N (Ranks sizeof(X) + sizeof(Y) + sizeof(R)).
#pragma once

#include "templates/exchange/sums.cuh"
#include "templates/exchange/sums_end.cuh"
#include "templates/exchange/tiles.cuh"

namespace gpt2c::tile {

/// Tells the others that this rank has sent all of the round, and waits for theirs: false in vain.
/// All threads of a block call.
template <int Ranks> __device__ __forceinline__ bool meetSums(Exchange *e, unsigned round) {
  const int rank = e->rank, other = (int)threadIdx.x;
  bool lost = exchanging::peek(&e->failed) != 0;
  if (other < Ranks && other != rank && !lost) {
    if (blockIdx.x == 0) {
      __threadfence_system(); // what the launch in front has stored
      exchanging::releaseNumber(SentSums::number(e, other, rank), round);
    }
    lost = !exchanging::awaitNumber(e, SentSums::number(e, rank, other), round, other);
  }
  return __syncthreads_count(lost) == 0;
}

template <typename C>
__device__ __forceinline__ void allReduceSent(Exchange *e, const typename C::B *bias,
                                              const typename C::R *residual, typename C::Y *y,
                                              float2 *statistics, int rows) {
  constexpr int V = 8;
  static_assert(C::N % V == 0 && (!C::Statistics || C::N % 32 == 0));
  const SumsEnd<C> end{bias, residual, y, statistics, rows};
  exchanging::waitAndRelease(e->apart);
  const unsigned round = exchanging::peek(&e->sums) + 1;
  const int blocks = e->apart ? (int)gridDim.x : min((int)gridDim.x, exchangeBlocks);
  if ((int)blockIdx.x < blocks && meetSums<C::Ranks>(e, round)) {
    const typename C::X *sums[C::Ranks];
#pragma unroll
    for (int r = 0; r < C::Ranks; r++)
      sums[r] = (const typename C::X *)(e->slots[e->rank] + SentSums::offset(e, r, round));
    const i64 count = (i64)rows * C::N, width = (i64)exchangeThreads * V;
#pragma unroll 1
    for (i64 first = blockIdx.x * width; first < count; first += blocks * width) {
      const i64 i = first + threadIdx.x * V;
      Pack<typename C::X, V> packs[C::Ranks];
#pragma unroll
      for (int r = 0; r < C::Ranks; r++)
        packs[r].raw = i < count ? __ldcg((const uint4 *)(sums[r] + i)) : uint4{};
      float sum[V];
#pragma unroll
      for (int v = 0; v < V; v++) {
        sum[v] = packs[0].get(v);
#pragma unroll
        for (int r = 1; r < C::Ranks; r++)
          sum[v] += packs[r].get(v);
      }
      end.template store<V>(i, sum, i < count);
    }
  }
  endRound(e, [&] { e->sums = round; });
}

} // namespace gpt2c::tile

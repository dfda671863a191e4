// all_reduce of what tiles of the product in front have sent (templates/linear/parts/
// received.cuh), where ranks share a device; elsewhere the tiles do it themselves:
// y = ((sum of rank 0 + sum of rank 1) + ..) + bias + residual, in fp32, rounded once.
//
// Config: Y, B (bias), R (residual); N (columns, a multiple of 8); Bias, Residual; Statistics (of
//   parts of 32 columns, which divide N); Ranks.
// Kernel: exchange, bias B[N] or null, residual R[rows,N] or null, y Y[rows,N], statistics
//   f32x2[N/32,rows] or null, rows.
// Grid: of at most exchangeBlocks, all of which run at the same time; block: exchangeThreads.
// Bytes: rows N (4 Ranks + sizeof(Y) + sizeof(R)).
#pragma once

#include "templates/exchange/pairs.cuh"
#include "templates/exchange/sums_end.cuh"

namespace gpt2c::tile {

template <typename C>
__device__ __forceinline__ void allReduceReceived(Exchange *e, const typename C::B *bias,
                                                  const typename C::R *residual, typename C::Y *y,
                                                  float2 *statistics, int rows) {
  static_assert(C::N % 8 == 0 && (!C::Statistics || C::N % 32 == 0));
  const SumsEnd<C> end{bias, residual, y, statistics, rows};
  exchanging::waitAndRelease(e->apart);
  const unsigned round = exchanging::peek(&e->round) + 1;
  const u64 *mine = (const u64 *)e->slots[e->rank];
  const i64 count = (i64)rows * C::N;
  const i64 width = (i64)gridDim.x * blockDim.x * 2;
#pragma unroll 1
  for (i64 first = (i64)blockIdx.x * blockDim.x * 2; first < count; first += width) {
    const i64 i = first + threadIdx.x * 2;
    const bool inside = i < count;
    float sum[2] = {};
#pragma unroll
    for (int from = 0; from < C::Ranks; from++) {
      unsigned word = 0;
      if (inside)
        word = exchanging::receive(e,
                                   mine + SumPairs::first(e, from, round) +
                                       SumPairs::place((int)(i / C::N), (int)(i % C::N), C::N),
                                   round, from);
      const float2 v = Mma<typename C::Y>::unpack(word);
      sum[0] = from == 0 ? v.x : sum[0] + v.x;
      sum[1] = from == 0 ? v.y : sum[1] + v.y;
    }
    end.template store<2>(i, sum, inside);
  }
  endRound(e, [&] { e->round = round; });
}

} // namespace gpt2c::tile

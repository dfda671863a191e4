// all_reduce: y = ((x of rank 0 + x of rank 1) + ..) + bias + residual, in fp32, rounded once. All
// ranks get the same bits.
//
// Config: X, Y, B (bias), R (residual); N (columns); Bias, Residual; Statistics (of parts of 32
//   columns, which divide N: row_statistics.cuh); Ranks; Items.
// Kernel: exchange, x X[rows,N], bias B[N] or null, residual R[rows,N] or null, y Y[rows,N],
//   statistics f32x2[N/32,rows] or null, rows.
// Grid, block: exchange.cuh.
// Bytes: rows N (sizeof(X) + sizeof(Y) + sizeof(R)), and 8 rows N to each other rank.
#pragma once

#include "templates/exchange/exchange.cuh"
#include "templates/linear/parts/row_statistics.cuh"

namespace gpt2c::tile {

template <typename C>
__device__ __forceinline__ void
allReduce(Exchange *exchange, const typename C::X *x, const typename C::B *__restrict__ bias,
          const typename C::R *residual, typename C::Y *y, float2 *statistics, int rows) {
  static_assert(!C::Statistics || C::N % 32 == 0);
  exchangeWords<C>(
      exchange, (i64)rows * C::N, [&](i64 i) { return __float_as_uint((float)load(x + i)); },
      [&](i64 i, const unsigned(&words)[C::Ranks]) {
        float sum = __uint_as_float(words[0]);
#pragma unroll
        for (int r = 1; r < C::Ranks; r++)
          sum += __uint_as_float(words[r]);
        if constexpr (C::Bias)
          sum += (float)load(bias + i % C::N);
        if constexpr (C::Residual)
          sum += (float)load(residual + i);
        store(y + i, sum);
        if constexpr (C::Statistics) { // a warp has one part of a row, or nothing
          const float2 part = partStatistics<32, 1, 32>({sum});
          if (threadIdx.x % 32 == 0)
            statistics[i % C::N / 32 * rows + i / C::N] = part;
        }
      });
}

} // namespace gpt2c::tile

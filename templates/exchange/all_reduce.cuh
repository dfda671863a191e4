// all_reduce: y = ((x of rank 0 + x of rank 1) + ..) + bias + residual, in fp32, rounded once. All
// ranks get the same bits, whether words go alone or in tiles.
//
// Config: X, Y, B (bias), R (residual); N (columns); Bias, Residual; Statistics (of parts of 32
//   columns, which divide N: row_statistics.cuh); Ranks; Items.
// Kernel: exchange, x X[rows,N], bias B[N] or null, residual R[rows,N] or null, y Y[rows,N],
//   statistics f32x2[N/32,rows] or null, rows.
// Grid, block: exchange.cuh.
// Bytes: rows N (sizeof(X) + sizeof(Y) + sizeof(R)), and 8 rows N to each other rank, in tiles 4.
#pragma once

#include "templates/exchange/sums_end.cuh"
#include "templates/exchange/tiles.cuh"

namespace gpt2c::tile {

template <typename C>
__device__ __forceinline__ void allReduce(Exchange *exchange, const typename C::X *x,
                                          const typename C::B *bias, const typename C::R *residual,
                                          typename C::Y *y, float2 *statistics, int rows) {
  static_assert(!C::Statistics || C::N % 32 == 0);
  const SumsEnd<C> end{bias, residual, y, statistics, rows};
  const i64 count = (i64)rows * C::N;
  if constexpr (C::N % 4 == 0)
    if (count > (i64)gridDim.x * blockDim.x * C::Items)
      return exchangeTiles<C>(
          exchange, count,
          [&](i64 i) {
            float a[4];
            loadFloats<4>(x + i, a);
            return uint4{__float_as_uint(a[0]), __float_as_uint(a[1]), __float_as_uint(a[2]),
                         __float_as_uint(a[3])};
          },
          [&](i64 i, const uint4(&words)[C::Ranks], bool inside) {
            float sum[4] = {};
#pragma unroll
            for (int r = 0; r < C::Ranks; r++) {
              const unsigned of[4] = {words[r].x, words[r].y, words[r].z, words[r].w};
#pragma unroll
              for (int v = 0; v < 4; v++)
                sum[v] = r == 0 ? __uint_as_float(of[v]) : sum[v] + __uint_as_float(of[v]);
            }
            end.store(i, sum, inside);
          });
  exchangeWords<C>(
      exchange, count, [&](i64 i) { return __float_as_uint((float)load(x + i)); },
      [&](i64 i, const unsigned(&words)[C::Ranks]) {
        float sum[1] = {__uint_as_float(words[0])};
#pragma unroll
        for (int r = 1; r < C::Ranks; r++)
          sum[0] += __uint_as_float(words[r]);
        end.store(i, sum);
      });
}

} // namespace gpt2c::tile

// all_gather: y[row, r N + column] = x[row, column] of rank r.
//
// Config: X (unsigned or unsigned short, whatever it means); N (columns of a rank); Ranks; Items.
// Kernel: exchange, x X[rows,N], y X[rows,Ranks N], rows.
// Grid, block: exchange.cuh.
// Bytes: rows N sizeof(X) (1 + Ranks), and 8 rows N to each other rank.
#pragma once

#include "templates/exchange/exchange.cuh"

namespace gpt2c::tile {

template <typename C>
__device__ __forceinline__ void allGather(Exchange *exchange, const typename C::X *x,
                                          typename C::X *y, int rows) {
  exchangeWords<C>(
      exchange, (i64)rows * C::N, [&](i64 i) { return (unsigned)x[i]; },
      [&](i64 i, const unsigned(&words)[C::Ranks]) {
        typename C::X *at = y + i / C::N * (C::N * C::Ranks) + i % C::N;
#pragma unroll
        for (int r = 0; r < C::Ranks; r++)
          at[r * C::N] = (typename C::X)words[r];
      });
}

} // namespace gpt2c::tile

// The end of a tensor-core tile of several rows a lane: as storeTile of linear_store.cuh, a pair of
// column tiles at a time for all rows, so that what the epilogue loads for a column is loaded once.
#pragma once

#include "common.cuh"

namespace gpt2c::tile {

/// Stores acc[i][j], the tile at rows row0 + RowStride i and columns col0 + 8 j.
template <int RowStride, typename Y, int TilesM, int TilesN, typename Epilogue>
__device__ __forceinline__ void storeColumns(float (&acc)[TilesM][TilesN][4], Y *y, int m, int n,
                                             int row0, int col0, const Epilogue &epilogue) {
  const int lane = threadIdx.x % 32;
  auto rowOf = [&](int i, int h) { return row0 + lane / 4 + i * RowStride + h * 8; };
  if constexpr (TilesN % 2 == 0)
    if (n % 4 == 0) {
      // Neighbouring lanes swap pairs of two column tiles: even lanes get 4 columns of the first,
      // odd lanes 4 of the second, so that a quad writes whole sectors.
      const bool odd = lane % 2 != 0;
      const int quadCol = col0 + odd * 8 + lane % 4 / 2 * 4;
      Y *line[TilesM][2];
#pragma unroll
      for (int i = 0; i < TilesM; i++)
#pragma unroll
        for (int h = 0; h < 2; h++)
          line[i][h] = y + (i64)rowOf(i, h) * n + quadCol;
      // Stores are one step behind, so that no load waits behind them.
      Pack<Y, 4> done[TilesM][2];
      auto store = [&](int j) {
#pragma unroll
        for (int i = 0; i < TilesM; i++)
#pragma unroll
          for (int h = 0; h < 2; h++)
            if (rowOf(i, h) < m && quadCol + j * 16 < n)
              storePack(line[i][h] + j * 16, done[i][h]);
      };
#pragma unroll
      for (int j = 0; j < TilesN / 2; j++) {
        float v[TilesM][2][4];
#pragma unroll
        for (int i = 0; i < TilesM; i++)
#pragma unroll
          for (int h = 0; h < 2; h++) {
            const float *a = &acc[i][2 * j][h * 2], *b = &acc[i][2 * j + 1][h * 2];
            const float x0 = __shfl_xor_sync(fullWarp, odd ? a[0] : b[0], 1);
            const float x1 = __shfl_xor_sync(fullWarp, odd ? a[1] : b[1], 1);
            v[i][h][0] = odd ? x0 : a[0];
            v[i][h][1] = odd ? x1 : a[1];
            v[i][h][2] = odd ? b[0] : x0;
            v[i][h][3] = odd ? b[1] : x1;
          }
#pragma unroll
        for (int i = 0; i < TilesM; i++)
#pragma unroll
          for (int h = 0; h < 2; h++)
            epilogue(v[i][h], (i64)min(rowOf(i, h), m - 1), (i64)min(quadCol + j * 16, n - 4));
        if (j > 0)
          store(j - 1);
#pragma unroll
        for (int i = 0; i < TilesM; i++)
#pragma unroll
          for (int h = 0; h < 2; h++)
#pragma unroll
            for (int e = 0; e < 4; e++)
              done[i][h].set(e, fromFloat<Y>(v[i][h][e]));
      }
      store(TilesN / 2 - 1);
      return;
    }
#pragma unroll
  for (int i = 0; i < TilesM; i++)
#pragma unroll
    for (int j = 0; j < TilesN; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int row = rowOf(i, e / 2), col = col0 + j * 8 + lane % 4 * 2 + e % 2;
        if (row >= m || col >= n)
          continue;
        float v[1] = {acc[i][j][e]};
        epilogue(v, (i64)row, (i64)col);
        storeFloats<1>(y + (i64)row * n + col, v);
      }
}

} // namespace gpt2c::tile

// The end of a tensor-core tile whose result is int8: epilogue, one scale for each Group columns of
// a row, store. Accumulators lie as in linear_store.cuh.
#pragma once

#include "int8.cuh"

namespace gpt2c::tile {

/// Stores acc[i][j], the tile at rows row0 + 16 i and columns col0 + 8 j, in y i8[m,n] and
/// scales f32[m,n/Group]. n is a multiple of Group and the tile begins at one, so groups are whole
/// or beyond n.
template <int Group, int TilesM, int TilesN, typename Epilogue>
__device__ __forceinline__ void storeTileQuantised(float (&acc)[TilesM][TilesN][4], i8 *y,
                                                   float *scales, int m, int n, int row0, int col0,
                                                   const Epilogue &epilogue) {
  static_assert(Group % 32 == 0 && TilesN * 8 % Group == 0);
  constexpr int quads = Group / 16; // of 4 columns, of a lane, in a group
  const int lane = threadIdx.x % 32;
  const bool odd = lane % 2 != 0;
  // As in storeTile, neighbouring lanes swap pairs, so that each holds 4 neighbouring columns.
  const int quadCol = odd * 8 + lane % 4 / 2 * 4;
#pragma unroll
  for (int i = 0; i < TilesM; i++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int row = row0 + i * 16 + h * 8 + lane / 4;
#pragma unroll
      for (int g = 0; g < TilesN * 8 / Group; g++) {
        const int col = col0 + g * Group;
        float v[quads][4], largest = 0.0f;
#pragma unroll
        for (int j = 0; j < quads; j++) {
          const float *a = &acc[i][(g * quads + j) * 2][h * 2],
                      *b = &acc[i][(g * quads + j) * 2 + 1][h * 2];
          const float x0 = __shfl_xor_sync(fullWarp, odd ? a[0] : b[0], 1);
          const float x1 = __shfl_xor_sync(fullWarp, odd ? a[1] : b[1], 1);
          v[j][0] = odd ? x0 : a[0];
          v[j][1] = odd ? x1 : a[1];
          v[j][2] = odd ? b[0] : x0;
          v[j][3] = odd ? b[1] : x1;
        }
#pragma unroll
        for (int j = 0; j < quads; j++)
          epilogue(v[j], (i64)min(row, m - 1), (i64)min(col + quadCol + j * 16, n - 4));
#pragma unroll
        for (int j = 0; j < quads; j++)
#pragma unroll
          for (int e = 0; e < 4; e++)
            largest = fmaxf(largest, fabsf(v[j][e]));
        largest = warpReduce<Max, 4>(largest);
        if (row >= m || col >= n)
          continue;
        const float scale = quantised::scale(largest), inverse = quantised::inverse(scale);
#pragma unroll
        for (int j = 0; j < quads; j++)
          *reinterpret_cast<unsigned *>(y + (i64)row * n + col + quadCol + j * 16) =
              quantised::pack(v[j][0], v[j][1], v[j][2], v[j][3], inverse);
        if (lane % 4 == 0)
          scales[(i64)row * (n / Group) + col / Group] = scale;
      }
    }
}

} // namespace gpt2c::tile

// The end of a tensor-core tile whose result is int8: epilogue, one scale for each Group columns of
// a row, store. Accumulators lie as in linear_store.cuh.
#pragma once

#include "int8.cuh"

namespace gpt2c::tile {

/// Of a quad's lanes each has pairs of bytes of 4 column tiles, those of tiles 0 and 1 in `a`, of 2
/// and 3 in `b`. Gives lane q of the quad the 8 bytes of tile q.
__device__ __forceinline__ uint2 gatherTile(unsigned a, unsigned b) {
  const bool odd = threadIdx.x % 2 != 0, upper = threadIdx.x % 4 >= 2;
  const unsigned other = __shfl_xor_sync(fullWarp, upper ? a : b, 2);
  const unsigned low = upper ? other : a, high = upper ? b : other; // of lanes q % 2, q % 2 + 2
  const unsigned keep = __byte_perm(low, high, odd ? 0x7632 : 0x5410),
                 got = __shfl_xor_sync(fullWarp, __byte_perm(low, high, odd ? 0x5410 : 0x7632), 1);
  return {__byte_perm(keep, got, odd ? 0x1054 : 0x5410),
          __byte_perm(keep, got, odd ? 0x3276 : 0x7632)};
}

/// Stores acc[i][j], the tile at rows row0 + RowStride i and columns col0 + 8 j, in y i8[m,n] and
/// scales f32[m,n/Group]. n is a multiple of Group and the tile begins at one, so groups are whole
/// or beyond n. Leaves the epilogue's results in acc.
template <int Group, int RowStride = 16, int TilesM, int TilesN, typename Epilogue>
__device__ __forceinline__ void storeTileQuantised(float (&acc)[TilesM][TilesN][4], i8 *y,
                                                   float *scales, int m, int n, int row0, int col0,
                                                   const Epilogue &epilogue) {
  static_assert(Group % 32 == 0 && TilesN * 8 % Group == 0);
  constexpr int tiles = Group / 8;
  const int lane = threadIdx.x % 32;
  auto rowOf = [&](int i, int h) { return row0 + lane / 4 + i * RowStride + h * 8; };
#pragma unroll
  for (int g = 0; g < TilesN * 8 / Group; g++) {
    const int col = col0 + g * Group;
    float largest[TilesM][2] = {};
    // All rows of a lane at once: they share what is loaded for a column.
#pragma unroll
    for (int j = g * tiles; j < (g + 1) * tiles; j++)
#pragma unroll
      for (int i = 0; i < TilesM; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          float v[2] = {acc[i][j][h * 2], acc[i][j][h * 2 + 1]};
          epilogue(v, (i64)min(rowOf(i, h), m - 1), (i64)min(col0 + j * 8 + lane % 4 * 2, n - 2));
          largest[i][h] = fmaxf(largest[i][h], fmaxf(fabsf(v[0]), fabsf(v[1])));
          acc[i][j][h * 2] = v[0];
          acc[i][j][h * 2 + 1] = v[1];
        }
#pragma unroll
    for (int i = 0; i < TilesM; i++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const float scale = quantised::scale(warpReduce<Max, 4>(largest[i][h])),
                    inverse = quantised::inverse(scale);
        const bool inside = rowOf(i, h) < m && col < n;
        i8 *to = y + (i64)rowOf(i, h) * n + col + lane % 4 * 8;
#pragma unroll
        for (int j = 0; j < tiles; j += 4) {
          auto pack = [&](int t) {
            const float *a = &acc[i][g * tiles + t][h * 2], *b = &acc[i][g * tiles + t + 1][h * 2];
            return quantised::pack(a[0], a[1], b[0], b[1], inverse);
          };
          const uint2 bytes = gatherTile(pack(j), pack(j + 2));
          if (inside)
            *reinterpret_cast<uint2 *>(to + j * 8) = bytes;
        }
        if (inside && lane % 4 == 0)
          scales[(i64)rowOf(i, h) * (n / Group) + col / Group] = scale;
      }
  }
}

} // namespace gpt2c::tile

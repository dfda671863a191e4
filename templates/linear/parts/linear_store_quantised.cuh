// The end of a tensor-core tile whose result is int8 or fp8: epilogue, one scale for each Group
// columns of a row unless the epilogue ends in integers, store. Accumulators lie as in
// linear_store.cuh.
#pragma once

#include "templates/device/int8.cuh"
#include "templates/linear/parts/linear_store.cuh"

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

/// Stores acc[i][j], the tile at rows row0 + 16 i and columns col0 + 8 j, in y Q[m,n]. The
/// epilogue leaves numbers within -128 .. 127, or any to fp8, which are rounded. Whole: no column
/// is outside.
template <bool Whole = false, int TilesM, int TilesN, typename Q, typename Epilogue>
__device__ __forceinline__ void storeTileBytes(float (&acc)[TilesM][TilesN][4], Q *y, int m, int n,
                                               int row0, int col0, const Epilogue &epilogue) {
  if (n % 8 != 0) {
    storeTile<1, 9, Whole>(acc, y, m, n, row0, col0, nullptr, nullptr, 0, epilogue);
    return;
  }
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int first = 0; first < TilesN; first += 4) {
    unsigned words[TilesM][2][2] = {}; // of column tiles 0 and 1, 2 and 3
    // All rows of a lane at once: they share what is loaded for a column.
#pragma unroll
    for (int j = first; j < minInt(first + 4, TilesN); j++)
#pragma unroll
      for (int i = 0; i < TilesM; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const int wanted = col0 + j * 8 + lane % 4 * 2;
          float v[2] = {acc[i][j][h * 2], acc[i][j][h * 2 + 1]};
          epilogue(v, (i64)min(row0 + lane / 4 + i * 16 + h * 8, m - 1),
                   (i64)(Whole ? wanted : min(wanted, n - 2)));
          const unsigned pair = quantised::pair<Q>(v[0], v[1]);
          unsigned &word = words[i][h][(j - first) / 2];
          word = j % 2 == 0 ? pair : __byte_perm(word, pair, 0x5410);
        }
#pragma unroll
    for (int i = 0; i < TilesM; i++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const uint2 bytes = gatherTile(words[i][h][0], words[i][h][1]);
        const int row = row0 + lane / 4 + i * 16 + h * 8, tile = first + lane % 4,
                  col = col0 + tile * 8;
        if (row < m && (TilesN % 4 == 0 || tile < TilesN) && (Whole || col < n))
          *reinterpret_cast<uint2 *>(y + (i64)row * n + col) = bytes;
      }
  }
}

/// Stores acc[i][j], the tile at rows row0 + RowStride i and columns col0 + 8 j, in y Q[m,n] and
/// scales f32[m,n/Group]. n is a multiple of Group and the tile begins at one, so groups are whole
/// or beyond n. Leaves the epilogue's results in acc.
template <int Group, int RowStride = 16, int TilesM, int TilesN, typename Q, typename Epilogue>
__device__ __forceinline__ void storeTileQuantised(float (&acc)[TilesM][TilesN][4], Q *y,
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
        const float scale = quantised::scale<Q>(warpReduce<Max, 4>(largest[i][h])),
                    inverse = quantised::inverse(scale);
        const bool inside = rowOf(i, h) < m && col < n;
        Q *to = y + (i64)rowOf(i, h) * n + col + lane % 4 * 8;
#pragma unroll
        for (int j = 0; j < tiles; j += 4) {
          auto pack = [&](int t) {
            const float *a = &acc[i][g * tiles + t][h * 2], *b = &acc[i][g * tiles + t + 1][h * 2];
            return quantised::pack<Q>(a[0], a[1], b[0], b[1], inverse);
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

#if __CUDA_ARCH__ >= 900
/// gelu of two numbers (epilogue.cuh), in fp16: wrong by at most |v| 2^-10.
__device__ __forceinline__ __half2 geluTanh(__half2 v) {
  const __half2 u =
      __hmul2(v, __hfma2(__hmul2(v, v), __float2half2_rn(0.7978845608028654f * 0.044715f),
                         __float2half2_rn(0.7978845608028654f)));
  unsigned t;
  asm("tanh.approx.f16x2 %0, %1;" : "=r"(t) : "r"(*reinterpret_cast<const unsigned *>(&u)));
  const __half2 half = __hmul2(v, __float2half2_rn(0.5f));
  return __hfma2(half, *reinterpret_cast<__half2 *>(&t), half);
}

/// storeTileBytes for gelu of the epilogue's results of scale * sums, the tile at row0 and col0, of
/// which a lane has two rows with a scale each, quantised as `given` says. From the epilogue on it
/// is computed in fp16: 1 / scale is the nearest half, and where x / scale is near the middle of
/// two integers either may be taken. n is a multiple of 8.
template <bool Whole, int Tiles, typename Sum, typename Epilogue, typename Given>
__device__ __forceinline__ void storeGeluBytes(const Sum (&sums)[Tiles][4], const float (&scale)[2],
                                               i8 *y, int m, int n, int row0, int col0,
                                               const Epilogue &epilogue, const Given &given) {
  const int lane = threadIdx.x % 32;
  // Adding 1.5 * 2^10 rounds to an integer, which is in the low byte then.
  const __half2 inverse = __float2half2_rn(given.inverse),
                origin = __float2half2_rn(1536.0f + given.zero),
                least = __float2half2_rn(1536.0f + Given::least),
                most = __float2half2_rn(1536.0f + 127.0f);
#pragma unroll
  for (int first = 0; first < Tiles; first += 4) {
    unsigned pairs[4][2] = {};
#pragma unroll
    for (int j = 0; j < minInt(4, Tiles - first); j++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const Sum *s = &sums[first + j][h * 2];
        float x[2] = {(float)s[0] * scale[h], (float)s[1] * scale[h]};
        const int wanted = col0 + (first + j) * 8 + lane % 4 * 2;
        epilogue(x, (i64)min(row0 + lane / 4 + h * 8, m - 1),
                 (i64)(Whole ? wanted : min(wanted, n - 2)));
        const __half2 v = geluTanh(__floats2half2_rn(x[0], x[1]));
        const __half2 q = __hmin2(__hmax2(__hfma2(v, inverse, origin), least), most);
        pairs[j][h] = *reinterpret_cast<const unsigned *>(&q);
      }
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const uint2 bytes = gatherTile(__byte_perm(pairs[0][h], pairs[1][h], 0x6420),
                                     __byte_perm(pairs[2][h], pairs[3][h], 0x6420));
      const int row = row0 + lane / 4 + h * 8, tile = first + lane % 4, col = col0 + tile * 8;
      if (row < m && (Tiles % 4 == 0 || tile < Tiles) && (Whole || col < n))
        *reinterpret_cast<uint2 *>(y + (i64)row * n + col) = bytes;
    }
  }
}

/// storeTileQuantised for the same. A group's 1 / s is the nearest half of 127 / max, of fp8 448 /
/// max, s its reciprocal, and where x / s is near the middle of two steps either may be taken.
/// Whole: all columns of the tile are inside.
template <int Group, bool Whole = true, int Tiles, typename Sum, typename Q, typename Epilogue>
__device__ __forceinline__ void
storeGeluQuantised(const Sum (&sums)[Tiles][4], const float (&scale)[2], Q *y, float *scales, int m,
                   int n, int row0, int col0, const Epilogue &epilogue) {
  static_assert(Group % 32 == 0 && Tiles * 8 % Group == 0);
  constexpr int tiles = Group / 8;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int first = 0; first < Tiles; first += tiles) {
    const int col = col0 + first * 8;
    __half2 v[tiles][2], largest[2] = {};
#pragma unroll
    for (int j = 0; j < tiles; j++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const Sum *s = &sums[first + j][h * 2];
        float x[2] = {(float)s[0] * scale[h], (float)s[1] * scale[h]};
        const int wanted = col + j * 8 + lane % 4 * 2;
        epilogue(x, (i64)min(row0 + lane / 4 + h * 8, m - 1),
                 (i64)(Whole ? wanted : min(wanted, n - 2)));
        v[j][h] = geluTanh(__floats2half2_rn(x[0], x[1]));
        largest[h] = __hmax2(largest[h], __habs2(v[j][h]));
      }
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int row = row0 + lane / 4 + h * 8;
      const float most =
          warpReduce<Max, 4>(fmaxf(__low2float(largest[h]), __high2float(largest[h])));
      const __half inverse =
          __float2half_rn(fminf(__fdividef(quantised::steps<Q>, most), 65504.0f));
      const bool inside = row < m && (Whole || col < n);
      Q *to = y + (i64)row * n + col + lane % 4 * 8;
#pragma unroll
      for (int j = 0; j < tiles; j += 4) {
        auto pack = [&](int t) {
          return quantised::pack<Q>(v[t][h], v[t + 1][h], __half2half2(inverse));
        };
        const uint2 bytes = gatherTile(pack(j), pack(j + 2));
        if (inside)
          *reinterpret_cast<uint2 *>(to + j * 8) = bytes;
      }
      if (inside && lane % 4 == 0)
        scales[(i64)row * (n / Group) + col / Group] = __fdividef(1.0f, __half2float(inverse));
    }
  }
}
#endif

} // namespace gpt2c::tile

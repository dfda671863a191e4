// The end of a tensor-core tile: split-K, epilogue, store. For accumulators in the layout
// of mma.m16n8 and wgmma: lane l holds rows l / 4 and l / 4 + 8 of a 16-row tile, columns
// 2 * (l % 4) and the next of an 8-column tile.
#pragma once

#include "templates/device/common.cuh"
#include "templates/device/split_k.cuh"
#include "templates/linear/parts/epilogue.cuh"
#include "templates/linear/parts/row_statistics.cuh"

namespace gpt2c::tile {

__host__ __device__ constexpr int largestDivisor(int n, int most) {
  while (n % most != 0)
    most--;
  return most;
}

/// What storeTile (below) is called with: split-K, and columns that four do not divide.
template <typename Y, int TilesM, int TilesN, typename Epilogue, typename Norm, typename Statistics>
struct TileStore {
  float (&acc)[TilesM][TilesN][4];
  Y *y;
  int m, n, col0;
  const Epilogue &epilogue;
  const Norm &norm;
  const typename Norm::Row (&rows)[TilesM][2];
  const Statistics &statistics;
  int firstRow, firstCol; // of this lane

  __device__ __forceinline__ int rowOf(int i, int h) const { return firstRow + i * 16 + h * 8; }

  /// Split-K: true in the block that arrives last at `counter`, whose acc has the sum then. Loads
  /// are not conditional: positions outside read the last one inside.
  template <int SplitK>
  __device__ __forceinline__ bool addSplits(float *partial, unsigned *counter, int split) const {
    const i64 size = (i64)m * n;
    putPartial(partial + split * size);
    if (!arriveLast(counter, SplitK))
      return false;
#pragma unroll
    for (int i = 0; i < TilesM; i++)
#pragma unroll
      for (int j = 0; j < TilesN; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          acc[i][j][e] = 0.0f;
#pragma unroll 1
    for (int s = 0; s < SplitK; s++)
      addPartial(partial + s * size);
    return true;
  }
  __device__ __forceinline__ void putPartial(float *to) const {
    const int m = this->m, n = this->n, firstCol = this->firstCol;
    const bool pairs = n % 2 == 0;
#pragma unroll
    for (int i = 0; i < TilesM; i++)
#pragma unroll
      for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < TilesN; j++) {
          const int row = rowOf(i, h), col = firstCol + j * 8;
          float *p = to + (i64)row * n + col;
          if (row >= m || col >= n)
            continue;
          if (pairs) {
            __stcg(reinterpret_cast<float2 *>(p), float2{acc[i][j][h * 2], acc[i][j][h * 2 + 1]});
            continue;
          }
          __stcg(p, acc[i][j][h * 2]);
          if (col + 1 < n)
            __stcg(p + 1, acc[i][j][h * 2 + 1]);
        }
  }
  __device__ __forceinline__ void addPartial(const float *from) const {
    const int n = this->n, firstCol = this->firstCol;
    const bool pairs = n % 2 == 0;
#pragma unroll
    for (int i = 0; i < TilesM; i++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const float *line = from + (i64)min(rowOf(i, h), m - 1) * n;
        if (pairs) {
#pragma unroll
          for (int j = 0; j < TilesN; j++) {
            float2 v =
                __ldcg(reinterpret_cast<const float2 *>(line + min(firstCol + j * 8, n - 2)));
            acc[i][j][h * 2] += v.x;
            acc[i][j][h * 2 + 1] += v.y;
          }
        } else {
#pragma unroll
          for (int j = 0; j < TilesN; j++) {
            acc[i][j][h * 2] += __ldcg(line + min(firstCol + j * 8, n - 1));
            acc[i][j][h * 2 + 1] += __ldcg(line + min(firstCol + j * 8 + 1, n - 1));
          }
        }
      }
  }

  /// n is even.
  __device__ __forceinline__ void storePairs() const {
    const int m = this->m, n = this->n, firstCol = this->firstCol;
#pragma unroll
    for (int i = 0; i < TilesM; i++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int row = rowOf(i, h);
        float v[TilesN][2];
#pragma unroll
        for (int j = 0; j < TilesN; j++) {
          v[j][0] = acc[i][j][h * 2];
          v[j][1] = acc[i][j][h * 2 + 1];
          const int col = min(firstCol + j * 8, n - 2);
          norm.apply(v[j], rows[i][h], col);
          epilogue(v[j], (i64)min(row, m - 1), (i64)col);
        }
#pragma unroll
        for (int j = 0; j < TilesN; j++)
          if (row < m && firstCol + j * 8 < n)
            gpt2c::epilogue::storeResults(epilogue, y, (i64)row, n, firstCol + j * 8, v[j]);
#pragma unroll
        for (int j = 0; j < TilesN; j++) {
          acc[i][j][h * 2] = v[j][0];
          acc[i][j][h * 2 + 1] = v[j][1];
        }
        statistics.template store<8 * TilesN>(acc[i], h, row, col0, m);
      }
  }
  __device__ __forceinline__ void storeElements() const {
    const int m = this->m, n = this->n, firstCol = this->firstCol;
#pragma unroll
    for (int i = 0; i < TilesM; i++)
#pragma unroll
      for (int j = 0; j < TilesN; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const int row = rowOf(i, e / 2), col = firstCol + j * 8 + e % 2;
          if (row >= m || col >= n)
            continue;
          float v[1] = {acc[i][j][e]};
          norm.apply(v, rows[i][e / 2], col);
          epilogue(v, (i64)row, (i64)col);
          gpt2c::epilogue::storeResults(epilogue, y, (i64)row, n, col, v);
        }
  }
};

/// Stores acc[i][j], the tile at rows row0 + 16 i and columns col0 + 8 j. With SplitK > 1 only the
/// block that arrives last at `counter` stores, the sum of all `partial` f32[SplitK,m,n].
/// `norm` and its `rows` and `statistics`: row_statistics.cuh; the latter are those of the rows'
/// parts, for even n that the tiles divide.
/// `Pairs` of column tiles have their operands loaded together. Whole: no column is outside. Loads
/// are not conditional and come before the first store, so that they are all in flight at once:
/// positions outside read the last one inside.
template <int SplitK, int Pairs = 9, bool Whole = false, typename Y, int TilesM, int TilesN,
          typename Epilogue, typename Norm = NoNorm, typename Statistics = NoStatistics>
__device__ __forceinline__ void
storeTile(float (&acc)[TilesM][TilesN][4], Y *y, int m, int n, int row0, int col0, float *partial,
          unsigned *counter, int split, const Epilogue &epilogue, const Norm &norm = {},
          const typename Norm::Row (&rows)[TilesM][2] = {}, const Statistics &statistics = {}) {
  const int lane = threadIdx.x % 32;
  const int firstRow = row0 + lane / 4, firstCol = col0 + lane % 4 * 2;
  const TileStore<Y, TilesM, TilesN, Epilogue, Norm, Statistics> store = {
      acc, y, m, n, col0, epilogue, norm, rows, statistics, firstRow, firstCol};
  if constexpr (SplitK > 1)
    if (!store.template addSplits<SplitK>(partial, counter, split))
      return;
  auto rowOf = [&](int i, int h) { return firstRow + i * 16 + h * 8; };
  // Not a function of its own, for which ptxas takes more registers in linear_tma.
  if constexpr (TilesN % 2 == 0)
    if (n % 4 == 0) {
      // Neighbouring lanes swap pairs of two column tiles: even lanes get 4 columns of the first,
      // odd lanes 4 of the second, so that a quad writes whole sectors.
      constexpr int chunk = largestDivisor(TilesN / 2, Pairs);
      constexpr bool together = chunk == TilesN / 2; // there are registers for that
      const bool odd = lane % 2 != 0;
      const int quadCol = col0 + odd * 8 + lane % 4 / 2 * 4;
      auto storeQuad = [&](int i, int h, int j) {
        const int row = rowOf(i, h);
        const float v[4] = {acc[i][2 * j][h * 2], acc[i][2 * j][h * 2 + 1],
                            acc[i][2 * j + 1][h * 2], acc[i][2 * j + 1][h * 2 + 1]};
        if (row < m && (Whole || quadCol + j * 16 < n))
          gpt2c::epilogue::storeResults(epilogue, y, (i64)row, n, quadCol + j * 16, v);
      };
#pragma unroll
      for (int i = 0; i < TilesM; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const int row = rowOf(i, h);
#pragma unroll
          for (int j0 = 0; j0 < TilesN / 2; j0 += chunk) {
            float v[chunk][4];
#pragma unroll
            for (int j = 0; j < chunk; j++) {
              const float *a = &acc[i][2 * (j0 + j)][h * 2], *b = &acc[i][2 * (j0 + j) + 1][h * 2];
              const float x0 = __shfl_xor_sync(fullWarp, odd ? a[0] : b[0], 1);
              const float x1 = __shfl_xor_sync(fullWarp, odd ? a[1] : b[1], 1);
              v[j][0] = odd ? x0 : a[0];
              v[j][1] = odd ? x1 : a[1];
              v[j][2] = odd ? b[0] : x0;
              v[j][3] = odd ? b[1] : x1;
            }
#pragma unroll
            for (int j = 0; j < chunk; j++) {
              const int wanted = quadCol + (j0 + j) * 16, col = Whole ? wanted : min(wanted, n - 4);
              norm.apply(v[j], rows[i][h], col);
              epilogue(v[j], (i64)min(row, m - 1), (i64)col);
            }
#pragma unroll
            for (int j = 0; j < chunk; j++)
#pragma unroll
              for (int e = 0; e < 4; e++)
                acc[i][2 * (j0 + j) + e / 2][h * 2 + e % 2] = v[j][e];
            if constexpr (!together)
#pragma unroll
              for (int j = 0; j < chunk; j++)
                storeQuad(i, h, j0 + j);
          }
          if constexpr (!together)
            if (Whole || col0 < n)
              statistics.template store<8 * TilesN>(acc[i], h, row, col0, m);
        }
      if constexpr (together)
#pragma unroll
        for (int i = 0; i < TilesM; i++)
#pragma unroll
          for (int h = 0; h < 2; h++) {
#pragma unroll
            for (int j = 0; j < TilesN / 2; j++)
              storeQuad(i, h, j);
            if (Whole || col0 < n)
              statistics.template store<8 * TilesN>(acc[i], h, rowOf(i, h), col0, m);
          }
      return;
    }
  if (n % 2 == 0)
    store.storePairs();
  else
    store.storeElements();
}

} // namespace gpt2c::tile

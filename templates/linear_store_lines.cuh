// The end of a tile of 128 rows by a warpgroup, result in fp16, for accumulators of wgmma: lines of
// 64 columns leave whole, by way of shared memory.
#pragma once

#include "linear_store_halves.cuh"
#include "row_statistics.cuh"

namespace gpt2c::tile {

#if __CUDA_ARCH__ >= 900
/// Stores a warp's rows of the tile at row0 and col0 of y[m,n]: acc[i] has rows row0 + 64 i on.
/// `norm`, its `rows` and `statistics`: row_statistics.cuh. n is a multiple of 64; Whole: no column
/// is outside. `buffer`: halvesBytes of shared memory.
template <bool Whole, int Tiles, typename Epilogue, typename Norm, typename Statistics>
__device__ __forceinline__ void
storeLines(float (&acc)[2][1][Tiles][4], __half *y, int m, int n, int row0, int col0, void *buffer,
           const Epilogue &epilogue, const Norm &norm, const typename Norm::Row (&rows)[2][2],
           const Statistics &statistics) {
  static_assert(Tiles % 8 == 0);
  const int lane = threadIdx.x % 32;
  auto place = [&](int row, int unit) {
    return static_cast<char *>(buffer) + row * 128 + (unit ^ row % 8) * 16;
  };
#pragma unroll
  for (int first = 0; first < Tiles; first += 8) {
    if (!Whole && col0 + first * 8 >= n)
      break;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int top = row0 + i * 64;
      unsigned v[8][2];
#pragma unroll
      for (int j = 0; j < 8; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          float *sums = &acc[i][0][first + j][h * 2];
          const int col = col0 + (first + j) * 8 + lane % 4 * 2;
          float x[2] = {sums[0], sums[1]};
          norm.apply(x, rows[i][h], col);
          epilogue(x, (i64)min(top + lane / 4 + h * 8, m - 1), (i64)col);
          sums[0] = x[0];
          sums[1] = x[1];
          v[j][h] = packHalves(x[0], x[1]);
        }
      __syncwarp(); // the lines before have left
#pragma unroll
      for (int j = 0; j < 8; j += 2)
        storeMatrices(place(lane % 16, j + lane / 16), v[j], v[j + 1]);
      __syncwarp();
#pragma unroll
      for (int k = 0; k < 4; k++) {
        const int row = k * 4 + lane / 8, unit = lane % 8;
        const uint4 line = *reinterpret_cast<const uint4 *>(place(row, unit));
        if (top + row < m)
          *reinterpret_cast<uint4 *>(y + (i64)(top + row) * n + col0 + first * 8 + unit * 8) = line;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 2; i++)
#pragma unroll
    for (int h = 0; h < 2; h++)
      statistics.template store<8 * Tiles>(acc[i][0], h, row0 + i * 64 + lane / 4 + h * 8, col0, m);
}
#endif

} // namespace gpt2c::tile

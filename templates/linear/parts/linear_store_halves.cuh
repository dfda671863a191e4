// The end of a tile of int8 or fp8 products whose result is fp16, for accumulators of wgmma: lines
// leave whole, by way of shared memory.
#pragma once

#include "templates/device/common.cuh"

namespace gpt2c::tile {

/// Shared memory of a warp: 16 rows of 64 halves, 16-byte unit u of row r at unit u ^ (r mod 8).
constexpr int halvesBytes = 16 * 128;

#if __CUDA_ARCH__ >= 900
/// Stores four 8 x 8 matrices of halves, held as mma has its accumulators; lane l has the address
/// of row l mod 8 of matrix l / 8.
__device__ __forceinline__ void storeMatrices(void *row, const unsigned (&a)[2],
                                              const unsigned (&b)[2]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(sharedAddress(row)),
      "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1])
      : "memory");
}

/// Stores the epilogue's results of scale * sums, the tile at row0 and col0 of y[m,n]. Of a lane's
/// two rows each has its scale. All columns of the tile are inside, n is a multiple of 8.
template <int Tiles, typename Sum, typename Epilogue>
__device__ __forceinline__ void storeHalves(const Sum (&sums)[Tiles][4], const float (&scale)[2],
                                            __half *y, int m, int n, int row0, int col0,
                                            void *buffer, const Epilogue &epilogue) {
  constexpr int rest = Tiles % 8; // column tiles that eight do not divide
  static_assert(rest == 0 || rest == 2 || rest == 4);
  const int lane = threadIdx.x % 32;
  auto place = [&](int row, int unit) {
    return static_cast<char *>(buffer) + row * 128 + (unit ^ row % 8) * 16;
  };
#pragma unroll
  for (int first = 0; first < Tiles; first += 8) {
    const int count = first + 8 <= Tiles ? 8 : rest;
    unsigned v[8][2];
#pragma unroll
    for (int j = 0; j < count; j++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const Sum *s = &sums[first + j][h * 2];
        float x[2] = {(float)s[0] * scale[h], (float)s[1] * scale[h]};
        epilogue(x, (i64)min(row0 + lane / 4 + h * 8, m - 1),
                 (i64)(col0 + (first + j) * 8 + lane % 4 * 2));
        const __half2 both = __floats2half2_rn(x[0], x[1]);
        v[j][h] = *reinterpret_cast<const unsigned *>(&both);
      }
    __syncwarp(); // the lines before have left
#pragma unroll
    for (int j = 0; j < count; j += 2)
      storeMatrices(place(lane % 16, j + lane / 16), v[j], v[j + 1]);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < count / 2; i++) {
      const int row = i * (32 / count) + lane / count, unit = lane % count;
      const uint4 line = *reinterpret_cast<const uint4 *>(place(row, unit));
      if (row0 + row < m)
        *reinterpret_cast<uint4 *>(y + (i64)(row0 + row) * n + col0 + first * 8 + unit * 8) = line;
    }
  }
}

/// Stores the epilogue's results of acc plus what `lines` has for them, and leaves the sums there:
/// the warp's 16 rows of boxes of 64 columns of halves, swizzled as above, which have BoxRows rows
/// each. All columns of the tile are inside, n is a multiple of 8.
template <int BoxRows, int Tiles, typename Epilogue>
__device__ __forceinline__ void storeOnto(const float (&acc)[Tiles][4], __half *y, int m, int n,
                                          int row0, int col0, char *lines,
                                          const Epilogue &epilogue) {
  static_assert(Tiles % 8 == 0);
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int first = 0; first < Tiles; first += 8, lines += BoxRows * 128) {
    auto place = [&](int row, int unit) { return lines + row * 128 + (unit ^ row % 8) * 16; };
    unsigned v[8][2];
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int h = 0; h < 2; h++)
        v[j][h] = *reinterpret_cast<const unsigned *>(place(lane / 4 + h * 8, j) + lane % 4 * 4);
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float x[2] = {acc[first + j][h * 2], acc[first + j][h * 2 + 1]};
        epilogue(x, (i64)min(row0 + lane / 4 + h * 8, m - 1),
                 (i64)(col0 + (first + j) * 8 + lane % 4 * 2));
        const float2 r = __half22float2(*reinterpret_cast<const __half2 *>(&v[j][h]));
        const __half2 both = __floats2half2_rn(x[0] + r.x, x[1] + r.y);
        v[j][h] = *reinterpret_cast<const unsigned *>(&both);
      }
#pragma unroll
    for (int j = 0; j < 8; j += 2)
      storeMatrices(place(lane % 16, j + lane / 16), v[j], v[j + 1]);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int row = i * 4 + lane / 8, unit = lane % 8;
      const uint4 line = *reinterpret_cast<const uint4 *>(place(row, unit));
      if (row0 + row < m)
        *reinterpret_cast<uint4 *>(y + (i64)(row0 + row) * n + col0 + first * 8 + unit * 8) = line;
    }
  }
}
#endif

} // namespace gpt2c::tile

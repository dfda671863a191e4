// The end of a tile, result in fp16 or bf16, for accumulators of wgmma: lines of 64 columns leave
// whole, by way of shared memory.
#pragma once

#include "templates/device/mma.cuh"
#include "templates/linear/parts/linear_store_halves.cuh"
#include "templates/linear/parts/operands.cuh"
#include "templates/linear/parts/row_statistics.cuh"

namespace gpt2c::tile {

#if __CUDA_ARCH__ >= 900
/// What a thread does to its units of lines, of 8 columns each, between shared memory and y: turns
/// them where the epilogue ends so. Loads of angles are on their way while sums are made results.
template <typename Epilogue, int Units, bool Turns = gpt2c::epilogue::isTurned<Epilogue>>
struct LineEnd {
  /// What a lane has to know of the row lane % 16 of its warp's; all lanes call.
  static __device__ __forceinline__ int ofRow(const Epilogue &, int, int) { return 0; }
  /// Unit `unit` of the thread is in row `row` of the warp's 16; all lanes call.
  __device__ __forceinline__ void load(const Epilogue &, int, int, int, int) {}
  template <typename Y>
  __device__ __forceinline__ uint4 apply(const Epilogue &, int, uint4 w) const {
    return w;
  }
  static __device__ __forceinline__ const Epilogue &before(const Epilogue &e) { return e; }
};
template <typename Epilogue, int Units> struct LineEnd<Epilogue, Units, true> {
  typename decltype(Epilogue::rotation)::template Angles<8> angles[Units];

  static __device__ __forceinline__ int ofRow(const Epilogue &e, int top, int m) {
    return e.rotation.placeOf(min(top + (int)threadIdx.x % 16, m - 1));
  }
  __device__ __forceinline__ void load(const Epilogue &e, int unit, int place, int row, int col) {
    angles[unit] = e.rotation.template loadAt<8>(__shfl_sync(fullWarp, place, row), col);
  }
  template <typename Y>
  __device__ __forceinline__ uint4 apply(const Epilogue &e, int unit, uint4 w) const {
    Pack<Y, 8> pack = {w};
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
      v[i] = pack.get(i);
    e.rotation.turn(v, angles[unit]);
#pragma unroll
    for (int i = 0; i < 8; i++)
      pack.set(i, fromFloat<Y>(v[i]));
    return pack.raw;
  }
  static __device__ __forceinline__ const auto &before(const Epilogue &e) { return e.before; }
};

/// storeLines (below) without the statistics, from column tile First on.
template <int First, bool Whole, typename Y, int Blocks, int Tiles, typename Epilogue,
          typename Norm>
__device__ __forceinline__ void
storeLinesFrom(float (&acc)[Blocks][1][Tiles][4], Y *y, Extent extent, int row0, int col0,
               void *buffer, const Epilogue &epilogue, const Norm &norm,
               const typename Norm::Row (&rows)[Blocks][2], const int (&places)[Blocks]) {
  constexpr int left = Tiles - First, count = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
  const int m = extent.m, n = extent.n, lane = threadIdx.x % 32;
  auto place = [&](int row, int unit) {
    return static_cast<char *>(buffer) + row * 128 + (unit ^ row % 8) * 16;
  };
  if (!Whole && col0 + First * 8 >= n)
    return;
#pragma unroll
  for (int i = 0; i < Blocks; i++) {
    const int top = row0 + i * 64;
    using End = LineEnd<Epilogue, ceilDiv(count, 2)>;
    End end;
    auto loadEnd = [&] {
#pragma unroll
      for (int k = 0; k < ceilDiv(count, 2); k++)
        end.load(epilogue, k, places[i], (k * (32 / count) + lane / count) % 16,
                 col0 + First * 8 + lane % count * 8);
    };
    // Before sums are made results where there are registers for both.
    constexpr bool early = Blocks * Tiles <= 16;
    if constexpr (early)
      loadEnd();
    unsigned v[count][2];
#pragma unroll
    for (int j = 0; j < count; j++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float *sums = &acc[i][0][First + j][h * 2];
        const int col = col0 + (First + j) * 8 + lane % 4 * 2;
        float x[2] = {sums[0], sums[1]};
        norm.apply(x, rows[i][h], col);
        End::before(epilogue)(x, (i64)min(top + lane / 4 + h * 8, m - 1), (i64)col);
        sums[0] = x[0];
        sums[1] = x[1];
        v[j][h] = Mma<Y>::pack(x[0], x[1]);
      }
    __syncwarp(); // the lines before have left
    if constexpr (!early)
      loadEnd();
#pragma unroll
    for (int j = 0; j < count; j += 2) // a unit of its own twice
      storeMatrices(place(lane % 16, j + lane / 16), v[j], v[count > 1 ? j + 1 : j]);
    __syncwarp();
#pragma unroll
    for (int k = 0; k < ceilDiv(count, 2); k++) {
      const int row = k * (32 / count) + lane / count, unit = lane % count;
      const uint4 line = *reinterpret_cast<const uint4 *>(place(row % 16, unit));
      if (row < 16 && top + row < m)
        gpt2c::epilogue::forResults(epilogue, y, [&](Y *to) {
          *reinterpret_cast<uint4 *>(to + (i64)(top + row) * n + col0 + First * 8 + unit * 8) =
              end.template apply<Y>(epilogue, k, line);
        });
    }
  }
  if constexpr (First + count < Tiles)
    storeLinesFrom<First + count, Whole>(acc, y, extent, row0, col0, buffer, epilogue, norm, rows,
                                         places);
}

/// Stores a warp's rows of the tile at row0 and col0 of y[m,n]: acc[i] has rows row0 + 64 i on.
/// `norm`, its `rows` and `statistics`: row_statistics.cuh. Whole: no column is outside, n is a
/// multiple of 8; else n and the tile are of 64, and statistics are of parts of 64 columns.
/// `buffer`: halvesBytes of shared memory.
template <bool Whole, typename Y, int Blocks, int Tiles, typename Epilogue, typename Norm,
          typename Statistics>
__device__ __forceinline__ void
storeLines(float (&acc)[Blocks][1][Tiles][4], Y *y, Extent extent, int row0, int col0, void *buffer,
           const Epilogue &epilogue, const Norm &norm, const typename Norm::Row (&rows)[Blocks][2],
           const Statistics &statistics) {
  static_assert(Whole || Tiles % 8 == 0);
  const int m = extent.m, n = extent.n, lane = threadIdx.x % 32;
  int places[Blocks];
#pragma unroll
  for (int i = 0; i < Blocks; i++)
    places[i] = LineEnd<Epilogue, 1>::ofRow(epilogue, row0 + i * 64, m);
  storeLinesFrom<0, Whole>(acc, y, extent, row0, col0, buffer, epilogue, norm, rows, places);
  constexpr int part = Whole ? Tiles : 8;
#pragma unroll
  for (int i = 0; i < Blocks; i++)
#pragma unroll
    for (int first = 0; first < Tiles; first += part)
      if (Whole || col0 + first * 8 < n)
#pragma unroll
        for (int h = 0; h < 2; h++)
          statistics.template store<8 * part>(
              reinterpret_cast<const float(&)[part][4]>(acc[i][0][first]), h,
              row0 + i * 64 + lane / 4 + h * 8, col0 + first * 8, m);
}

/// storeGatedLines (below) from column tile First on.
template <int First, bool Whole, typename Y, int Blocks, int Tiles, typename Epilogue,
          typename Norm>
__device__ __forceinline__ void storeGatedLinesFrom(float (&acc)[Blocks][1][Tiles][4], Y *y, int m,
                                                    int n, int row0, int col0, void *buffer,
                                                    const Epilogue &epilogue, const Norm &norm,
                                                    const typename Norm::Row (&rows)[Blocks][2]) {
  // Units of 16 bytes, that two column tiles leave.
  constexpr int left = (Tiles - First) / 2, units = left >= 8   ? 8
                                                    : left >= 4 ? 4
                                                    : left >= 2 ? 2
                                                                : 1;
  const int lane = threadIdx.x % 32, firstCol = col0 + First * 8;
  auto place = [&](int row, int unit) {
    return static_cast<char *>(buffer) + row * 128 + (unit ^ row % 8) * 16;
  };
  if (!Whole && firstCol >= n)
    return;
#pragma unroll
  for (int i = 0; i < Blocks; i++) {
    const int top = row0 + i * 64;
    unsigned v[units][2]; // elements t and t + 4 of a unit, t = lane % 4
#pragma unroll
    for (int u = 0; u < units; u++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float of[2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const float *sums = &acc[i][0][First + 2 * u + e][h * 2];
          const int col = firstCol + (2 * u + e) * 8 + lane % 4 * 2;
          float x[2] = {sums[0], sums[1]};
          norm.apply(x, rows[i][h], col);
          epilogue(x, (i64)min(top + lane / 4 + h * 8, m - 1), (i64)col);
          of[e] = x[0];
        }
        v[u][h] = Mma<Y>::pack(of[0], of[1]);
      }
    __syncwarp(); // the lines before have left
#pragma unroll
    for (int u = 0; u < units; u += 2)
      storeMatrices(place(lane % 16, u + lane / 16), v[u], v[units > 1 ? u + 1 : u]);
    __syncwarp();
#pragma unroll
    for (int k = 0; k < ceilDiv(units, 2); k++) {
      const int row = k * (32 / units) + lane / units, unit = lane % units;
      const uint4 w = *reinterpret_cast<const uint4 *>(place(row % 16, unit));
      const uint4 line = {__byte_perm(w.x, w.y, 0x5410), __byte_perm(w.z, w.w, 0x5410),
                          __byte_perm(w.x, w.y, 0x7632), __byte_perm(w.z, w.w, 0x7632)};
      if (row < 16 && top + row < m && (Whole || firstCol + unit * 16 < n))
        *reinterpret_cast<uint4 *>(y + (i64)(top + row) * (n / 2) + firstCol / 2 + unit * 8) = line;
    }
  }
  if constexpr (First + 2 * units < Tiles)
    storeGatedLinesFrom<First + 2 * units, Whole>(acc, y, m, n, row0, col0, buffer, epilogue, norm,
                                                  rows);
}
/// The same where the epilogue ends with a gate: y[m,n / 2] has half of the tile's columns. The
/// tile is of a multiple of 16 columns, n of 16.
template <bool Whole, typename Y, int Blocks, int Tiles, typename Epilogue, typename Norm>
__device__ __forceinline__ void storeGatedLines(float (&acc)[Blocks][1][Tiles][4], Y *y, int m,
                                                int n, int row0, int col0, void *buffer,
                                                const Epilogue &epilogue, const Norm &norm,
                                                const typename Norm::Row (&rows)[Blocks][2]) {
  static_assert(Tiles % 2 == 0);
  storeGatedLinesFrom<0, Whole>(acc, y, m, n, row0, col0, buffer, epilogue, norm, rows);
}
#endif

} // namespace gpt2c::tile

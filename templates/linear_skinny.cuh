// linear for a few rows on tensor cores: Y[M,N] = epilogue(norm(X)[M,K] * W[N,K]^T), fp16, M <= Rows
//
// A memory-bound kernel like linear_rowdot, for so many rows that dot products on the plain units
// would take longer than reading W. Sixteen columns of Y are the 16 rows of the mma's A operand,
// eight rows of X its 8 columns, so few rows waste nothing. W goes from device memory straight into
// the operand registers: the order of K within a sum is free as long as W and X agree, so thread t
// of a quad takes 8 neighbouring k (one 16-byte load) and feeds them to two mma.m16n8k16 as
//   first:  k slots 2t, 2t+1 <- halves 0, 1;  2t+8, 2t+9 <- halves 2, 3
//   second: the same slots   <- halves 4, 5;                    6, 7.
// KSplit warps share the K range of 16 columns and add their sums in order through shared memory.
// The first loads of W are in flight before X is touched, also across a programmatic dependent
// launch. X is read once per block, from shared memory when a norm is fused.
//
// Config: X, W (__half), Y (float or __half), Rows (8, 16, 32 or 64), KSplit, Warps (a multiple of
// KSplit), K (static, a multiple of 8), Norm (NormKind), P (type of gain and shift).
// Kernel: x f16[M,K], w f16[N,K], y Y[M,N], m, n, then with a norm gain P[K], shift P[K] (null:
// none), epsilon; then the operands of the epilogue.
// Grid: ceil(N / Skinny<C>::columns); block: Skinny<C>::threads; dynamic shared:
// Skinny<C>::sharedBytes. Bytes: 2 N K + 2 M K + M N sizeof(Y); flops: 2 M N K.
#pragma once

#include "common.cuh"
#include "normalised_rows.cuh"

namespace gpt2c {

template <typename C> struct Skinny {
  static constexpr int threads = 32 * C::Warps;
  static constexpr int groups = C::Warps / C::KSplit;
  static constexpr int columns = 16 * groups;
  static constexpr int tiles = C::Rows / 8;
  static constexpr int chunks = ceilDiv(ceilDiv(C::K, 32), C::KSplit); // of 32 k, of a warp
  static constexpr int slab = minInt(chunks, tiles >= 4 ? 4 : 6);      // chunks in flight
  static constexpr bool staged = C::Norm != NormKind::None;
  // Rows of X in shared memory: two rows, read together, lie in different halves of the banks.
  static constexpr int rowStride = ceilDiv(C::K, 64) * 64 + 32;
  static constexpr int sharedBytes = staged ? C::Rows * rowStride * 2 : 0;
  static_assert(C::Warps % C::KSplit == 0 && C::Rows % 8 == 0 && C::K % 8 == 0);
};

namespace tile {

template <typename C, typename Epilogue>
__device__ __forceinline__ void
linearSkinny(const __half *x, const __half *__restrict__ w, typename C::Y *y, int m, int n,
             const typename C::P *gain, const typename C::P *shift, float epsilon, int tileN,
             __half *shared, const Epilogue &epilogue) {
  using L = Skinny<C>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = warp / C::KSplit, part = warp % C::KSplit;
  const int col0 = tileN * L::columns + group * 16, row = lane / 4;
  const int k0 = part * L::chunks * 32 + lane % 4 * 8;
  // Columns and rows outside are those of the last one: their sums are not stored.
  const __half *weights[2] = {w + (i64)min(col0 + row, n - 1) * C::K,
                              w + (i64)min(col0 + row + 8, n - 1) * C::K};
  auto inside = [&](int chunk) {
    return C::K % (32 * L::chunks * C::KSplit) == 0 ||
           (chunk < L::chunks && k0 + chunk * 32 < C::K);
  };

  uint4 a[L::slab][2];
  auto fetch = [&](int first) {
#pragma unroll
    for (int u = 0; u < L::slab; u++)
      if (first + u < L::chunks)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const bool valid = inside(first + u);
          a[u][h] = loadPackStreaming<8>(weights[h] + (valid ? k0 + (first + u) * 32 : 0)).raw;
          if (!valid)
            a[u][h] = uint4{};
        }
  };
  if constexpr (C::Rows == 8)
    releaseSuccessor();
  fetch(0);
  if (lane < 16 && col0 + lane < n)
    epilogue.prefetchColumn(col0 + lane);
  prefetchNorm<C>(gain, shift);
  waitForPredecessor();
  if constexpr (L::staged) {
    stageRows<C, L::rowStride>(shared, x, m, gain, shift, epsilon);
    __syncthreads();
  }

  float acc[L::tiles][4] = {};
#pragma unroll 1
  for (int first = 0; first < L::chunks; first += L::slab) {
    if (first > 0)
      fetch(first);
    uint4 b[L::slab][L::tiles];
#pragma unroll
    for (int u = 0; u < L::slab; u++)
      if (first + u < L::chunks)
#pragma unroll
        for (int t = 0; t < L::tiles; t++) {
          const bool valid = inside(first + u);
          const int k = valid ? k0 + (first + u) * 32 : 0, r = min(t * 8 + row, m - 1);
          b[u][t] = loadPack<8>(L::staged ? shared + r * L::rowStride + k : x + r * C::K + k).raw;
          if (!valid)
            b[u][t] = uint4{};
        }
#pragma unroll
    for (int u = 0; u < L::slab; u++) {
      if (first + u >= L::chunks)
        break;
      const unsigned low[4] = {a[u][0].x, a[u][1].x, a[u][0].y, a[u][1].y};
      const unsigned high[4] = {a[u][0].z, a[u][1].z, a[u][0].w, a[u][1].w};
#pragma unroll
      for (int t = 0; t < L::tiles; t++) {
        mma16816(acc[t], low, b[u][t].x, b[u][t].y);
        mma16816(acc[t], high, b[u][t].z, b[u][t].w);
      }
    }
  }

  // acc[t]: columns col0 + lane / 4 and + 8, rows t * 8 + lane % 4 * 2 and the next.
  __shared__ float sums[C::Warps][C::Rows][17];
#pragma unroll
  for (int t = 0; t < L::tiles; t++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      sums[warp][t * 8 + lane % 4 * 2 + e % 2][lane / 4 + e / 2 * 8] = acc[t][e];
  __syncthreads();
  for (int i = threadIdx.x; i < L::groups * 16 * C::Rows; i += L::threads) {
    const int c = i % 16, r = i / 16 % C::Rows, g = i / 16 / C::Rows;
    const int col = tileN * L::columns + g * 16 + c;
    if (r >= m || col >= n)
      continue;
    float v[1] = {0.0f};
#pragma unroll
    for (int p = 0; p < C::KSplit; p++)
      v[0] += sums[g * C::KSplit + p][r][c];
    epilogue(v, (i64)r, (i64)col);
    storeFloats<1>(y + (i64)r * n + col, v);
  }
}

} // namespace tile
} // namespace gpt2c

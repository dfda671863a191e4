// linear, fp32 arithmetic on the plain units: Y[M,N] = epilogue(X[M,K] * W[N,K]^T)
//
// Tile: BM x BN of Y per block, K in slabs of BK, transposed into two shared buffers while the slab
// before is used; (BM / TM) * (BN / TN) threads, each TM x TN as groups of 4 x 4, spread so that a
// warp's shared reads are wide. Any M, N, K; loads are 4 elements wide when K is a multiple of 4.
//
// Config: X, Y (float or __half), W (either, or signed char), BM, BN, BK (8 or 16), TM, TN (multiples of 4), SplitK.
// Kernel: x X[M,K], w W[N,K], y Y[M,N], m, n, k, then, if SplitK > 1, partial f32[SplitK,M,N] and
// counters u32[tiles]
//   (zero before the first launch, zero after each); then the operands of the epilogue.
// Grid: (ceil(M / BM), ceil(N / BN), SplitK); block: LinearSimt<C>::threads; dynamic shared: none.
// Bytes: M K + N K + M N elements + epilogue operands; flops: 2 M N K.
#pragma once

#include "templates/device/int8.cuh"
#include "templates/device/split_k.cuh"

namespace gpt2c {

template <typename C> struct LinearSimt {
  static constexpr int threadsM = C::BM / C::TM, threadsN = C::BN / C::TN;
  static constexpr int threads = threadsM * threadsN;
  static constexpr int quads = C::BK / 4;
  static constexpr int loadsA = ceilDiv(C::BM * quads, threads),
                       loadsB = ceilDiv(C::BN * quads, threads);
  static constexpr int strideA = C::BM + 4, strideB = C::BN + 4;
  static_assert(C::TM % 4 == 0 && C::TN % 4 == 0 && C::BK % 4 == 0 && threads % 32 == 0);
};

namespace tile {

/// Four elements of row `row` from column `col` on; zero outside rows and columns.
template <typename T>
__device__ __forceinline__ void loadQuad(float (&v)[4], const T *p, int row, int rows, int col,
                                         int cols, i64 k) {
  if (row < rows && k % 4 == 0 && col < cols) {
    loadFloats<4>(p + row * k + col, v);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
    v[i] = row < rows && col + i < cols ? toFloat(p[row * k + col + i]) : 0.0f;
}

template <typename C, typename Epilogue>
__device__ __forceinline__ void
linearSimt(const typename C::X *x, const typename C::W *__restrict__ w, typename C::Y *y, int m,
           int n, int k, float *partial, unsigned *counters, int tileM, int tileN, int split,
           const Epilogue &epilogue) {
  using L = LinearSimt<C>;
  __shared__ alignas(16) float sa[2][C::BK][L::strideA];
  __shared__ alignas(16) float sb[2][C::BK][L::strideB];
  const int tx = threadIdx.x % L::threadsN, ty = threadIdx.x / L::threadsN;
  const int row0 = tileM * C::BM, col0 = tileN * C::BN;

  int kBegin = 0, kEnd = k;
  if constexpr (C::SplitK > 1)
    splitRange(k, C::SplitK, split, C::BK, kBegin, kEnd);
  const int slabs = (kEnd - kBegin + C::BK - 1) / C::BK;

  float ra[L::loadsA][4], rb[L::loadsB][4];
  auto fetch = [&](int slab) {
    int k0 = kBegin + slab * C::BK;
#pragma unroll
    for (int i = 0; i < L::loadsA; i++) {
      int id = i * L::threads + threadIdx.x, r = id / L::quads;
      loadQuad(ra[i], x, r < C::BM ? row0 + r : m, m, k0 + id % L::quads * 4, kEnd, k);
    }
#pragma unroll
    for (int i = 0; i < L::loadsB; i++) {
      int id = i * L::threads + threadIdx.x, r = id / L::quads;
      loadQuad(rb[i], w, r < C::BN ? col0 + r : n, n, k0 + id % L::quads * 4, kEnd, k);
    }
  };
  auto put = [&](int buffer) {
#pragma unroll
    for (int i = 0; i < L::loadsA; i++) {
      int id = i * L::threads + threadIdx.x, r = id / L::quads, c = id % L::quads * 4;
      if (r < C::BM)
#pragma unroll
        for (int j = 0; j < 4; j++)
          sa[buffer][c + j][r] = ra[i][j];
    }
#pragma unroll
    for (int i = 0; i < L::loadsB; i++) {
      int id = i * L::threads + threadIdx.x, r = id / L::quads, c = id % L::quads * 4;
      if (r < C::BN)
#pragma unroll
        for (int j = 0; j < 4; j++)
          sb[buffer][c + j][r] = rb[i][j];
    }
  };

  float acc[C::TM][C::TN] = {};
  waitForPredecessor();
  if (slabs > 0) {
    fetch(0);
    put(0);
  }
  __syncthreads();
  for (int slab = 0; slab < slabs; slab++) {
    const int buffer = slab % 2;
    if (slab + 1 < slabs)
      fetch(slab + 1);
#pragma unroll
    for (int kk = 0; kk < C::BK; kk++) {
      float a[C::TM], b[C::TN];
#pragma unroll
      for (int i = 0; i < C::TM; i += 4) {
        float4 v = *reinterpret_cast<const float4 *>(&sa[buffer][kk][i * L::threadsM + ty * 4]);
        a[i] = v.x, a[i + 1] = v.y, a[i + 2] = v.z, a[i + 3] = v.w;
      }
#pragma unroll
      for (int j = 0; j < C::TN; j += 4) {
        float4 v = *reinterpret_cast<const float4 *>(&sb[buffer][kk][j * L::threadsN + tx * 4]);
        b[j] = v.x, b[j + 1] = v.y, b[j + 2] = v.z, b[j + 3] = v.w;
      }
#pragma unroll
      for (int i = 0; i < C::TM; i++)
#pragma unroll
        for (int j = 0; j < C::TN; j++)
          acc[i][j] = fmaf(a[i], b[j], acc[i][j]);
    }
    if (slab + 1 < slabs)
      put(1 - buffer);
    __syncthreads();
  }

  auto forEachElement = [&](auto &&body) {
#pragma unroll
    for (int i = 0; i < C::TM; i++) {
      int row = row0 + i / 4 * 4 * L::threadsM + ty * 4 + i % 4;
      if (row >= m)
        continue;
#pragma unroll
      for (int j = 0; j < C::TN; j++) {
        int col = col0 + j / 4 * 4 * L::threadsN + tx * 4 + j % 4;
        if (col < n)
          body(row, col, acc[i][j]);
      }
    }
  };

  if constexpr (C::SplitK > 1) {
    const i64 size = (i64)m * n;
    forEachElement(
        [&](int row, int col, float v) { __stcg(partial + split * size + (i64)row * n + col, v); });
    if (!arriveLast(counters + tileM * ((n + C::BN - 1) / C::BN) + tileN, C::SplitK))
      return;
    // Unconditional loads, so that they are in flight together: positions outside read the last.
#pragma unroll
    for (int i = 0; i < C::TM; i++)
#pragma unroll
      for (int j = 0; j < C::TN; j++)
        acc[i][j] = 0.0f;
#pragma unroll 1
    for (int s = 0; s < C::SplitK; s++)
#pragma unroll
      for (int i = 0; i < C::TM; i++) {
        int row = min(row0 + i / 4 * 4 * L::threadsM + ty * 4 + i % 4, m - 1);
        const float *from = partial + s * size + (i64)row * n;
#pragma unroll
        for (int j = 0; j < C::TN; j++)
          acc[i][j] += __ldcg(from + min(col0 + j / 4 * 4 * L::threadsN + tx * 4 + j % 4, n - 1));
      }
  }

  if (n % 4 == 0) {
#pragma unroll
    for (int i = 0; i < C::TM; i++) {
      int row = row0 + i / 4 * 4 * L::threadsM + ty * 4 + i % 4;
      float v[C::TN / 4][4];
#pragma unroll
      for (int j = 0; j < C::TN; j++)
        v[j / 4][j % 4] = acc[i][j];
#pragma unroll
      for (int j = 0; j < C::TN / 4; j++)
        epilogue(v[j], (i64)min(row, m - 1),
                 (i64)min(col0 + j * 4 * L::threadsN + tx * 4, n - 4));
#pragma unroll
      for (int j = 0; j < C::TN / 4; j++) {
        int col = col0 + j * 4 * L::threadsN + tx * 4;
        if (row < m && col < n)
          storeFloats<4>(y + (i64)row * n + col, v[j]);
      }
    }
  } else {
    forEachElement([&](int row, int col, float a) {
      float v[1] = {a};
      epilogue(v, (i64)row, (i64)col);
      storeFloats<1>(y + (i64)row * n + col, v);
    });
  }
}

} // namespace tile
} // namespace gpt2c

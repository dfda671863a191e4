// linear, fp32 arithmetic on the plain units: Y[M,N] = epilogue(X[M,K] * W[N,K]^T)
//
// Tile: BM x BN of Y per block, k-tiles of BK, transposed into two shared buffers while the one
// before is used; (BM / TM) * (BN / TN) threads, each TM x TN as groups of 4 x 4, spread so that a
// warp's shared reads are wide. Any M, N, K; loads are 4 elements wide when K is a multiple of 4.
//
// Config: X, Y (float or __half), W (either, or signed char), BM, BN, BK (8 or 16), TM, TN
// (multiples of 4), SplitK.
// Kernel: x X[M,K], w W[N,K], y Y[M,N], m, n, k, then, if SplitK > 1, partial f32[SplitK,M,N] and
//   counters u32[tiles] (zero before the first launch, zero after each); then the operands of the
//   epilogue.
// Grid: (ceil(M / BM), ceil(N / BN), SplitK); block: LinearSimt<C>::threads; dynamic shared: none.
// Bytes: M K + N K + M N elements + epilogue operands; flops: 2 M N K.
#pragma once

#include "templates/device/int8.cuh"
#include "templates/device/split_k.cuh"
#include "templates/linear/parts/epilogue.cuh"
#include "templates/linear/parts/operands.cuh"

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

/// The parameters of the kernel and of the tile.
template <typename C, typename Epilogue> struct LinearSimtParams {
  const typename C::X *x;
  const typename C::W *w;
  typename C::Y *y;
  int m, n, k;
  float *partial;
  unsigned *counters;
  int tileM, tileN, split;
  const Epilogue &epilogue;
};

/// A block's tile, in phases; `run` has their order.
template <typename C, typename Epilogue> struct LinearSimtTile {
  using L = LinearSimt<C>;
  using SharedA = float[2][C::BK][L::strideA];
  using SharedB = float[2][C::BK][L::strideB];

  const LinearSimtParams<C, Epilogue> p;
  SharedA &sa; // two k-tiles each
  SharedB &sb;
  int tx, ty, row0, col0, kBegin, kEnd;
  float ra[L::loadsA][4], rb[L::loadsB][4];
  float acc[C::TM][C::TN] = {};

  __device__ __forceinline__ LinearSimtTile(const LinearSimtParams<C, Epilogue> &p, SharedA &sa,
                                            SharedB &sb)
      : p(p), sa(sa), sb(sb) {}

  __device__ __forceinline__ void run() {
    tx = threadIdx.x % L::threadsN, ty = threadIdx.x / L::threadsN;
    row0 = p.tileM * C::BM, col0 = p.tileN * C::BN;
    kBegin = 0, kEnd = p.k;
    if constexpr (C::SplitK > 1)
      splitRange(p.k, C::SplitK, p.split, C::BK, kBegin, kEnd);
    waitForPredecessor();
    multiply();
    if constexpr (C::SplitK > 1)
      if (!addSplits())
        return;
    store();
  }

  __device__ __forceinline__ void fetch(int kTile) {
    const int k0 = kBegin + kTile * C::BK;
#pragma unroll
    for (int i = 0; i < L::loadsA; i++) {
      int id = i * L::threads + threadIdx.x, r = id / L::quads;
      loadQuad(ra[i], p.x, r < C::BM ? row0 + r : p.m, p.m, k0 + id % L::quads * 4, kEnd, p.k);
    }
#pragma unroll
    for (int i = 0; i < L::loadsB; i++) {
      int id = i * L::threads + threadIdx.x, r = id / L::quads;
      loadQuad(rb[i], p.w, r < C::BN ? col0 + r : p.n, p.n, k0 + id % L::quads * 4, kEnd, p.k);
    }
  }
  __device__ __forceinline__ void put(int buffer) {
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
  }
  __device__ __forceinline__ void multiply() {
    const int kTiles = (kEnd - kBegin + C::BK - 1) / C::BK;
    if (kTiles > 0) {
      fetch(0);
      put(0);
    }
    __syncthreads();
    for (int kTile = 0; kTile < kTiles; kTile++) {
      const int buffer = kTile % 2;
      if (kTile + 1 < kTiles)
        fetch(kTile + 1);
#pragma unroll
      for (int kk = 0; kk < C::BK; kk++)
        multiplyColumn(buffer, kk);
      if (kTile + 1 < kTiles)
        put(1 - buffer);
      __syncthreads();
    }
  }
  __device__ __forceinline__ void multiplyColumn(int buffer, int kk) {
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

  // The end
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ int rowOf(int i) const {
    return row0 + i / 4 * 4 * L::threadsM + ty * 4 + i % 4;
  }
  __device__ __forceinline__ int columnOf(int j) const {
    return col0 + j / 4 * 4 * L::threadsN + tx * 4 + j % 4;
  }
  template <typename Body> __device__ __forceinline__ void forEachElement(Body &&body) const {
    const int m = p.m, n = p.n;
#pragma unroll
    for (int i = 0; i < C::TM; i++) {
      const int row = rowOf(i);
      if (row >= m)
        continue;
#pragma unroll
      for (int j = 0; j < C::TN; j++)
        if (const int col = columnOf(j); col < n)
          body(row, col, acc[i][j]);
    }
  }
  /// Split-K: true in the block that arrives last, which has the sum then.
  __device__ __forceinline__ bool addSplits() {
    const int m = p.m, n = p.n;
    const i64 size = (i64)m * n;
    float *const mine = p.partial + p.split * size;
    forEachElement([&](int row, int col, float v) { __stcg(mine + (i64)row * n + col, v); });
    unsigned *const counter = p.counters + p.tileM * ((n + C::BN - 1) / C::BN) + p.tileN;
    if (!arriveLast(counter, C::SplitK))
      return false;
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
        const float *from = p.partial + s * size + (i64)min(rowOf(i), m - 1) * n;
#pragma unroll
        for (int j = 0; j < C::TN; j++)
          acc[i][j] += __ldcg(from + min(columnOf(j), n - 1));
      }
    return true;
  }
  __device__ __forceinline__ void store() const {
    if (p.n % 4 == 0) {
#pragma unroll
      for (int i = 0; i < C::TM; i++)
        storeRow(i);
    } else {
      forEachElement([&](int row, int col, float a) {
        float v[1] = {a};
        p.epilogue(v, (i64)row, (i64)col);
        epilogue::storeResults<Epilogue>(p.y, (i64)row, p.n, col, v);
      });
    }
  }
  __device__ __forceinline__ void storeRow(int i) const {
    const int row = rowOf(i), m = p.m, n = p.n;
    float v[C::TN / 4][4];
#pragma unroll
    for (int j = 0; j < C::TN; j++)
      v[j / 4][j % 4] = acc[i][j];
#pragma unroll
    for (int j = 0; j < C::TN / 4; j++)
      p.epilogue(v[j], (i64)min(row, m - 1), (i64)min(columnOf(j * 4), n - 4));
#pragma unroll
    for (int j = 0; j < C::TN / 4; j++)
      if (const int col = columnOf(j * 4); row < m && col < n)
        epilogue::storeResults<Epilogue>(p.y, (i64)row, n, col, v[j]);
  }
};

template <typename C, typename Epilogue>
__device__ __forceinline__ void
linearSimt(const typename C::X *x, const typename C::W *__restrict__ w, typename C::Y *y,
           Sizes sizes, SplitSums splits, TileIndex index, const Epilogue &epilogue) {
  const int m = sizes.m, n = sizes.n, k = sizes.k;
  float *const partial = splits.partial;
  unsigned *const counters = splits.counters;
  const int tileM = index.m, tileN = index.n, split = index.split;
  using Tile = LinearSimtTile<C, Epilogue>;
  __shared__ alignas(16) typename Tile::SharedA sa;
  __shared__ alignas(16) typename Tile::SharedB sb;
  Tile tile({x, w, y, m, n, k, partial, counters, tileM, tileN, split, epilogue}, sa, sb);
  tile.run();
}

} // namespace tile
} // namespace gpt2c

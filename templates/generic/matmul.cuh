// matmul: y[batch, m, n] = a[batch, m, k] b[batch, k, n] with any strides, through shared memory,
// for every numeric element type. The plain product: what has constant weights is a `linear`.
//
// Config: T (storage), BM x BN (tile of y), BK, TM x TN (of one thread).
// Kernel: y, a, b, m, n, k, batches, strides aRow, aCol, bRow, bCol, then the batch axes with
//   strides of y, a and b. y is dense in its last two axes.
// Grid: any, batches * ceil(m / BM) * ceil(n / BN) is one round; block: BM / TM * BN / TN.
// Bytes: batches (m k + k n + m n) sizeof(T); flops: 2 batches m n k.
#pragma once

#include "templates/device/elementwise.cuh"
#include "templates/device/strided.cuh"

namespace gpt2c {

template <typename C> struct MatMul {
  static constexpr int threadsN = C::BN / C::TN, threads = C::BM / C::TM * threadsN;
};

namespace tile {

template <typename C, typename Batch>
__device__ __forceinline__ void matmul(typename C::T *y, const typename C::T *a,
                                       const typename C::T *b, i64 m, i64 n, i64 k, i64 batches,
                                       i64 aRow, i64 aCol, i64 bRow, i64 bCol, const Batch &axes,
                                       i64 block, i64 blocks) {
  using T = Compute<typename C::T>;
  constexpr int threads = MatMul<C>::threads;
  __shared__ T sa[C::BK][C::BM + 1], sb[C::BK][C::BN + 1];
  const int tn = threadIdx.x % MatMul<C>::threadsN, tm = threadIdx.x / MatMul<C>::threadsN;
  const i64 tilesM = (m + C::BM - 1) / C::BM, tilesN = (n + C::BN - 1) / C::BN;
  waitForPredecessor();
  for (i64 tile = block; tile < batches * tilesM * tilesN; tile += blocks) {
    const auto place = axes.at(tile / (tilesM * tilesN));
    const i64 row0 = tile / tilesN % tilesM * C::BM, col0 = tile % tilesN * C::BN;
    const typename C::T *pa = a + place.offset[1], *pb = b + place.offset[2];
    T acc[C::TM][C::TN] = {};
    for (i64 k0 = 0; k0 < k; k0 += C::BK) {
      __syncthreads();
      for (int i = threadIdx.x; i < C::BM * C::BK; i += threads) {
        const i64 row = row0 + i / C::BK, at = k0 + i % C::BK;
        sa[i % C::BK][i / C::BK] = row < m && at < k ? load(pa + row * aRow + at * aCol) : (T)0;
      }
      for (int i = threadIdx.x; i < C::BN * C::BK; i += threads) {
        const i64 col = col0 + i % C::BN, at = k0 + i / C::BN;
        sb[i / C::BN][i % C::BN] = col < n && at < k ? load(pb + at * bRow + col * bCol) : (T)0;
      }
      __syncthreads();
#pragma unroll
      for (int kk = 0; kk < C::BK; kk++)
#pragma unroll
        for (int i = 0; i < C::TM; i++)
#pragma unroll
          for (int j = 0; j < C::TN; j++)
            acc[i][j] =
                elementwise::add(acc[i][j], elementwise::mul(sa[kk][tm * C::TM + i],
                                                             sb[kk][j * MatMul<C>::threadsN + tn]));
    }
#pragma unroll
    for (int i = 0; i < C::TM; i++) {
      const i64 row = row0 + tm * C::TM + i;
#pragma unroll
      for (int j = 0; j < C::TN; j++) {
        const i64 col = col0 + j * MatMul<C>::threadsN + tn;
        if (row < m && col < n)
          store(y + place.offset[0] + row * n + col, acc[i][j]);
      }
    }
  }
}

} // namespace tile
} // namespace gpt2c

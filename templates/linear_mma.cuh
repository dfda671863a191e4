// linear, fp16 operands on tensor cores: Y[M,N] = epilogue(X[M,K] * W[N,K]^T)
//
// Tile: BM x BN of Y per block, K in slabs of BK through a ring of Stages shared buffers filled by
// cp.async; WarpsM x WarpsN warps, each BM/WarpsM x BN/WarpsN by mma.m16n8k16 with fp32
// accumulators. Rows of a slab are BK + 8 halves apart, so that ldmatrix and cp.async meet no bank
// twice. Any M, N, K: rows and K tails are filled with zeros; when K is no multiple of 8, slabs are
// loaded element by element.
//
// Config: Y (float or __half), BM, BN, BK (32 or 64), WarpsM, WarpsN, Stages, SplitK.
// Kernel: x f16[M,K], w f16[N,K], y Y[M,N], m, n, k, then, if SplitK > 1, partial f32[SplitK,M,N]
// and
//   counters u32[tiles] (zero before the first launch, zero after each); then the operands of the
//   epilogue.
// Grid: (ceil(M / BM), ceil(N / BN), SplitK); block: LinearMma<C>::threads; dynamic shared:
// LinearMma<C>::sharedBytes. Bytes: 2 (M K + N K) + sizeof(Y) M N + epilogue operands; flops: 2 M N
// K.
#pragma once

#include "common.cuh"
#include "linear_store.cuh"

namespace gpt2c {

template <typename C> struct LinearMma {
  static constexpr int warps = C::WarpsM * C::WarpsN;
  static constexpr int threads = 32 * warps;
  static constexpr int warpM = C::BM / C::WarpsM;
  static constexpr int warpN = C::BN / C::WarpsN;
  static constexpr int rowStride = C::BK + 8;
  static constexpr int stageHalves = (C::BM + C::BN) * rowStride;
  static constexpr int sharedBytes = C::Stages * stageHalves * 2;
  static_assert(warpM % 16 == 0 && warpN % 16 == 0 && C::BK % 16 == 0 && C::Stages >= 2);
};

namespace tile {

/// Loads `Rows` rows of a K-major matrix, columns [k0, k0 + BK), into shared memory.
template <int Rows, int BK, int Threads>
__device__ __forceinline__ void loadSlab(__half *shared, const __half *global, int row0, int rows,
                                         int k0, int kEnd, i64 k) {
  constexpr int chunks = BK / 8, rowStride = BK + 8;
  if (k % 8 == 0) {
#pragma unroll
    for (int i = 0; i < ceilDiv(Rows * chunks, Threads); i++) {
      int id = i * Threads + threadIdx.x;
      if (Rows * chunks % Threads != 0 && id >= Rows * chunks)
        break;
      int r = id / chunks, c = id % chunks * 8;
      bool valid = row0 + r < rows && k0 + c < kEnd;
      copyAsync16(shared + r * rowStride + c, valid ? global + (row0 + r) * k + k0 + c : global,
                  valid);
    }
  } else {
    for (int id = threadIdx.x; id < Rows * BK; id += Threads) {
      int r = id / BK, c = id % BK;
      bool valid = row0 + r < rows && k0 + c < kEnd;
      shared[r * rowStride + c] = valid ? global[(row0 + r) * k + k0 + c] : __half(0.0f);
    }
  }
}

template <typename C, typename Epilogue>
__device__ __forceinline__ void linearMma(const __half *x, const __half *__restrict__ w,
                                          typename C::Y *y, int m, int n, int k, float *partial,
                                          unsigned *counters, int tileM, int tileN, int split,
                                          __half *shared, const Epilogue &epilogue) {
  using L = LinearMma<C>;
  constexpr int tilesM = L::warpM / 16, tilesN = L::warpN / 8;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row0 = tileM * C::BM, col0 = tileN * C::BN;
  const int warpRow = warp / C::WarpsN * L::warpM, warpCol = warp % C::WarpsN * L::warpN;

  int kBegin = 0, kEnd = k;
  if constexpr (C::SplitK > 1)
    splitRange(k, C::SplitK, split, C::BK, kBegin, kEnd);
  const int slabs = (kEnd - kBegin + C::BK - 1) / C::BK;

  auto load = [&](int slab) {
    if (slab < slabs) {
      __half *a = shared + slab % C::Stages * L::stageHalves;
      loadSlab<C::BM, C::BK, L::threads>(a, x, row0, m, kBegin + slab * C::BK, kEnd, k);
      loadSlab<C::BN, C::BK, L::threads>(a + C::BM * L::rowStride, w, col0, n,
                                         kBegin + slab * C::BK, kEnd, k);
    }
    copyAsyncCommit();
  };

  float acc[tilesM][tilesN][4] = {};
  waitForPredecessor();
#pragma unroll
  for (int s = 0; s < C::Stages - 1; s++)
    load(s);

  for (int slab = 0; slab < slabs; slab++) {
    copyAsyncWait<C::Stages - 2>();
    __syncthreads();
    load(slab + C::Stages - 1);
    const __half *a = shared + slab % C::Stages * L::stageHalves;
    const __half *b = a + C::BM * L::rowStride;
    // Lane addresses for ldmatrix: A as (rows 0-7, 8-15) x (k 0-7, 8-15), B as (k 0-7, 8-15) x
    // (columns 0-7, 8-15).
    const __half *aLane = a + (warpRow + lane % 16) * L::rowStride + lane / 16 * 8;
    const __half *bLane =
        b + (warpCol + lane % 8 + lane / 16 * 8) * L::rowStride + lane / 8 % 2 * 8;
#pragma unroll
    for (int kk = 0; kk < C::BK; kk += 16) {
      unsigned af[tilesM][4], bf[tilesN / 2][4];
#pragma unroll
      for (int i = 0; i < tilesM; i++)
        loadMatrix4(af[i], aLane + i * 16 * L::rowStride + kk);
#pragma unroll
      for (int j = 0; j < tilesN / 2; j++)
        loadMatrix4(bf[j], bLane + j * 16 * L::rowStride + kk);
#pragma unroll
      for (int i = 0; i < tilesM; i++)
#pragma unroll
        for (int j = 0; j < tilesN; j++)
          mma16816(acc[i][j], af[i], bf[j / 2][j % 2 * 2], bf[j / 2][j % 2 * 2 + 1]);
    }
  }

  storeTile<C::SplitK>(acc, y, m, n, row0 + warpRow, col0 + warpCol, partial,
                       counters + tileM * ((n + C::BN - 1) / C::BN) + tileN, split, epilogue);
}

} // namespace tile
} // namespace gpt2c

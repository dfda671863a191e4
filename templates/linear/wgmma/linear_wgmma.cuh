// linear for many rows, operands fp16 or bf16: Y[M,N] = epilogue(X[M,K] * W[N,K]^T)
//
// On sm_90a: BM x BN of Y per block, GroupsM = BM / 64 warpgroups, each 64 x BN by wgmma.m64nBNk16
// with both operands in shared memory and fp32 accumulators in registers. K in k-tiles of 64 (rows
// of 128 bytes) through a ring of Stages buffers, filled by cp.async in the 128-byte swizzle:
// 16-byte unit u of row r lies at unit u ^ (r mod 8). Two blocks share a multiprocessor, so one
// multiplies while the other waits. Elsewhere: the same tile by linear_mma, which needs no more
// shared memory. Any M and N; K a multiple of 8 (a path for others in the loop would slow all of
// them down).
//
// Config: X (__half or __nv_bfloat16), Y (float or X's type), BM (64 or 128), BN (64, 128 or 192),
// Stages (>= 3), SplitK.
// Kernel, grid: as linear_mma; block: LinearWgmma<C>::threads; dynamic shared:
// LinearWgmma<C>::sharedBytes. Bytes: 2 (M K + N K) + sizeof(Y) M N + epilogue operands; flops:
// 2 M N K.
#pragma once

#include "templates/device/wgmma.cuh"
#include "templates/linear/mma/linear_mma.cuh"
#include "templates/linear/parts/operands.cuh"

namespace gpt2c {

template <typename C> struct LinearWgmma {
  static constexpr int groups = C::BM / 64;
  static constexpr int threads = 128 * groups;
  static constexpr int BK = 64;
  static constexpr int stageHalves = (C::BM + C::BN) * BK;
  static constexpr int sharedBytes = C::Stages * stageHalves * 2 + 1024; // k-tiles begin at 1 KiB
  static constexpr int ahead = C::Stages - 1;                            // k-tiles on their way
  static_assert(C::BM % 64 == 0 && C::BN % 64 == 0 && C::BN <= 192 && C::Stages >= 3);
};

/// The same tile without wgmma.
template <typename C> struct WithoutWgmma : C {
  static constexpr int BK = 32, Stages = 4, XGroup = 0, YGroup = 0;
  static constexpr int WarpsM = 2, WarpsN = 2 * LinearWgmma<C>::groups;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// One thread's share of the copies of a Rows x 64 k-tile into the swizzled layout.
template <typename X, int Rows, int Threads> struct SwizzledKTile {
  static constexpr int step = Threads / 8, count = Rows / step;
  static_assert(Threads % 64 == 0 && Rows % step == 0);
  const X *from; // this thread's first unit at k = 0
  i64 k;
  int rowsLeft, column, to;

  __device__ __forceinline__ SwizzledKTile(const X *global, int row0, int rows, i64 k) : k(k) {
    const int row = threadIdx.x / 8, unit = threadIdx.x % 8;
    from = global + (row0 + row) * k + unit * 8;
    rowsLeft = rows - row0 - row;
    column = unit * 8;
    to = row * 64 + (unit ^ row % 8) * 8;
  }
  /// Columns [k0, k0 + 64), zero from kEnd on; `zero` is any address that may be read.
  __device__ __forceinline__ void load(X *shared, int k0, int kEnd, const X *zero) const {
    const int columns = kEnd - k0 - column;
#pragma unroll
    for (int i = 0; i < count; i++) {
      const X *source = from + i * step * k + k0;
      X *target = shared + to + i * step * 64;
      const bool valid = i * step < rowsLeft && columns > 0;
      copyAsync16(target, valid ? source : zero, valid);
    }
  }
};

#endif

namespace tile {

template <typename C, typename Epilogue>
__device__ __forceinline__ void linearWgmma(const typename C::X *x,
                                            const typename C::X *__restrict__ w, typename C::Y *y,
                                            Sizes sizes, SplitSums splits, TileIndex index,
                                            typename C::X *shared, const Epilogue &epilogue) {
  using L = LinearWgmma<C>;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const int m = sizes.m, n = sizes.n, k = sizes.k;
  float *const partial = splits.partial;
  unsigned *const counters = splits.counters;
  const int tileM = index.m, tileN = index.n, split = index.split;
  using X = typename C::X;
  shared += (1024 - sharedAddress(shared) % 1024) % 1024 / 2;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4;
  const int row0 = tileM * C::BM, col0 = tileN * C::BN;
  int kBegin = 0, kEnd = k;
  if constexpr (C::SplitK > 1)
    splitRange(k, C::SplitK, split, L::BK, kBegin, kEnd);
  const int kTiles = (kEnd - kBegin + L::BK - 1) / L::BK;

  const SwizzledKTile<X, C::BM, L::threads> kTileX(x, row0, m, k);
  const SwizzledKTile<X, C::BN, L::threads> kTileW(w, col0, n, k);
  auto buffer = [&](int kTile) { return shared + kTile % C::Stages * L::stageHalves; };
  auto loadW = [&](int kTile) {
    if (kTile < kTiles)
      kTileW.load(buffer(kTile) + C::BM * L::BK, kBegin + kTile * L::BK, kEnd, w);
  };
  auto loadX = [&](int kTile) {
    if (kTile < kTiles)
      kTileX.load(buffer(kTile), kBegin + kTile * L::BK, kEnd, w);
  };

  float acc[1][C::BN / 8][4] = {};
#pragma unroll
  for (int s = 0; s < L::ahead; s++)
    loadW(s);
  for (int i = threadIdx.x; i < C::BN && col0 + i < n; i += L::threads)
    epilogue.prefetchColumn(col0 + i);
  waitForPredecessor();
#pragma unroll
  for (int s = 0; s < L::ahead; s++) {
    loadX(s);
    copyAsyncCommit(); // the first of them has all of W
  }

  for (int kTile = 0; kTile < kTiles; kTile++) {
    copyAsyncWait<L::ahead - 1>();
    // What cp.async wrote is read by wgmma, through another proxy.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const X *a = buffer(kTile) + group * 64 * L::BK, *b = buffer(kTile) + C::BM * L::BK;
    const u64 operandA = swizzledOperand(a), operandB = swizzledOperand(b);
    wgmmaFence();
#pragma unroll
    for (int kk = 0; kk < L::BK / 16; kk++)
      wgmma<X>(acc[0], operandA + kk * 2, operandB + kk * 2); // 16 halves are two 16-byte units
    wgmmaCommit();
    // All warpgroups have ended the k-tile before, whose buffer this is.
    loadW(kTile + L::ahead);
    loadX(kTile + L::ahead);
    copyAsyncCommit();
    wgmmaWait<0>();
  }
  storeTile<C::SplitK>(acc, y, m, n, row0 + group * 64 + warp * 16, col0, partial,
                       counters + tileM * ((n + C::BN - 1) / C::BN) + tileN, split, epilogue);
#else
  static_assert(LinearMma<WithoutWgmma<C>>::threads == L::threads &&
                LinearMma<WithoutWgmma<C>>::sharedBytes <= L::sharedBytes);
  linearMma<WithoutWgmma<C>>(x, w, y, sizes, {}, splits, index, shared, epilogue);
#endif
}

} // namespace tile
} // namespace gpt2c

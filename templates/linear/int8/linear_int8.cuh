// linear for many rows, int8 operands: Y[M,N] = epilogue(scales * (X[M,K] * W[N,K]^T))
//
// On sm_90a: BM x BN of Y per block, BM / 64 warpgroups, each 64 x BN by wgmma.m64nBNk32 with both
// operands in shared memory and exact int32 sums in registers. K-tiles, ring and swizzle are those
// of linear_wgmma, byte for byte: a row of a k-tile is 128 elements of K. Elsewhere: the same tile
// by linear_mma. Any M and N; K a multiple of 16 and at most 2^17, so that no sum overflows.
//
// XGroup 64 or 128: the sums of each XGroup elements of K are multiplied by xScale of row and group
// and added up in fp32 before the next group is begun; other blocks of the multiprocessor multiply
// meanwhile. K is a multiple of XGroup. XGroup 0: one int32 sum. Every other scale is a matter of
// the epilogue.
//
// YGroup 64 or 128: Y is quantised, one scale for each YGroup columns of a row (int8.cuh), which
// lie in one tile. N is a multiple of YGroup, BN too; no split K. YGroup 0 and Y of signed char:
// the epilogue ends in integers.
//
// Config: Y (float, __half or signed char, the last with YGroup), BM (64 or 128), BN (64, 128, 256
// without XGroup), Stages (>= 3), SplitK, XGroup, YGroup.
// Kernel: x i8[M,K], w i8[N,K], y Y[M,N], m, n, k, then with XGroup xScale f32[M,K/XGroup], with
// YGroup yScale f32[M,N/YGroup], then, if SplitK > 1, partial and counters; then the operands of
// the epilogue. Grid, block, shared memory: as linear_wgmma.
// Bytes: M K + N K + sizeof(Y) M N + scales and epilogue operands; operations: 2 M N K.
#pragma once

#include "templates/linear/parts/linear_store_quantised.cuh"
#include "templates/linear/parts/operands.cuh"
#include "templates/linear/wgmma/linear_wgmma.cuh"

namespace gpt2c {

template <typename C> struct LinearInt8 {
  static constexpr int groups = C::BM / 64;
  static constexpr int threads = 128 * groups;
  static constexpr int BK = 128, tiles = C::BN / 8;
  static constexpr int kTileBytes = (C::BM + C::BN) * BK;
  static constexpr int sharedBytes = C::Stages * kTileBytes + 1024; // k-tiles begin at 1 KiB
  static constexpr int ahead = C::Stages - 1;                       // k-tiles on their way
  static_assert(C::BM % 64 == 0 && (C::BN == 64 || C::BN == 128 || C::BN == 256) && ahead >= 2);
  static_assert(C::XGroup == 0 || ((C::XGroup == 64 || C::XGroup == 128) && C::BN <= 128));
  static_assert(C::YGroup == 0 || (C::BN % maxInt(C::YGroup, 1) == 0 && C::SplitK == 1));
};

/// The same tile without wgmma.
template <typename C> struct Int8WithoutWgmma : C {
  using X = i8;
  static constexpr int BK = 64, Stages = 3;
  // The columns that share a scale belong to one warp.
  static constexpr int WarpsM = C::YGroup > 0 ? 4 * LinearInt8<C>::groups : 2;
  static constexpr int WarpsN = 4 * LinearInt8<C>::groups / WarpsM;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

#define GPT2C_SUM1(io, j) io(c[j][0]), io(c[j][1]), io(c[j][2]), io(c[j][3])
#define GPT2C_SUM8(io, j)                                                                          \
  GPT2C_SUM1(io, j), GPT2C_SUM1(io, j + 1), GPT2C_SUM1(io, j + 2), GPT2C_SUM1(io, j + 3),          \
      GPT2C_SUM1(io, j + 4), GPT2C_SUM1(io, j + 5), GPT2C_SUM1(io, j + 6), GPT2C_SUM1(io, j + 7)
#define GPT2C_REGS_0                                                                               \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"                           \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define GPT2C_REGS_32                                                                              \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"               \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define GPT2C_REGS_64                                                                              \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"               \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"               \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"   \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "   \
  "%127"

#define GPT2C_WGMMA(io, add)                                                                       \
  if constexpr (Tiles == 8)                                                                        \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {" GPT2C_REGS_0                 \
                 "}, %32, %33, " add ";"                                                           \
                 : GPT2C_SUM8(io, 0)                                                               \
                 : "l"(a), "l"(b));                                                                \
  else if constexpr (Tiles == 16)                                                                  \
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {" GPT2C_REGS_0 GPT2C_REGS_32  \
                 "}, %64, %65, " add ";"                                                           \
                 : GPT2C_SUM8(io, 0), GPT2C_SUM8(io, 8)                                            \
                 : "l"(a), "l"(b));                                                                \
  else                                                                                             \
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8 {" GPT2C_REGS_0                \
                     GPT2C_REGS_32 GPT2C_REGS_64 "}, %128, %129, " add ";"                         \
                 : GPT2C_SUM8(io, 0), GPT2C_SUM8(io, 8), GPT2C_SUM8(io, 16), GPT2C_SUM8(io, 24)    \
                 : "l"(a), "l"(b))
#define GPT2C_OUT(r) "=r"(r)
#define GPT2C_INOUT(r) "+r"(r)

/// c[64,N] (+)= a[64,32] * b[N,32]^T over a warpgroup, N = 8 Tiles.
template <bool Add, int Tiles>
__device__ __forceinline__ void wgmmaInt8(int (&c)[Tiles][4], u64 a, u64 b) {
  static_assert(Tiles == 8 || Tiles == 16 || Tiles == 32);
  if constexpr (Add) {
    GPT2C_WGMMA(GPT2C_INOUT, "1");
  } else {
    GPT2C_WGMMA(GPT2C_OUT, "0");
  }
}

#undef GPT2C_INOUT
#undef GPT2C_OUT
#undef GPT2C_WGMMA
#undef GPT2C_REGS_64
#undef GPT2C_REGS_32
#undef GPT2C_REGS_0
#undef GPT2C_SUM8
#undef GPT2C_SUM1

/// acc += scale * sums; the lane's rows have the scales scale[0] and scale[1].
template <int Tiles>
__device__ __forceinline__ void addSums(float (&acc)[Tiles][4], int (&sums)[Tiles][4],
                                        const float (&scale)[2]) {
  pinSums(sums);
#pragma unroll
  for (int j = 0; j < Tiles; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      acc[j][e] = fmaf(scale[e / 2], (float)sums[j][e], acc[j][e]);
}

#endif

namespace tile {

template <typename C, typename Epilogue>
__device__ __forceinline__ void linearInt8(const i8 *x, const i8 *__restrict__ w, typename C::Y *y,
                                           Sizes sizes, GroupScales scales, SplitSums splits,
                                           TileIndex index, i8 *shared, const Epilogue &epilogue) {
  using L = LinearInt8<C>;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const int m = sizes.m, n = sizes.n, k = sizes.k;
  const float *const xScale = scales.x;
  float *const yScale = scales.y;
  float *const partial = splits.partial;
  unsigned *const counters = splits.counters;
  const int tileM = index.m, tileN = index.n, split = index.split;
  shared += (1024 - sharedAddress(shared) % 1024) % 1024;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4;
  const int row0 = tileM * C::BM, col0 = tileN * C::BN;
  const int warpRow = row0 + group * 64 + warp * 16;
  const int groups = k / maxInt(C::XGroup, 1); // of a row of X
  int kBegin = 0, kEnd = k;
  if constexpr (C::SplitK > 1)
    splitRange(k, C::SplitK, split, L::BK, kBegin, kEnd);
  const int kTiles = (kEnd - kBegin + L::BK - 1) / L::BK;

  // K-tiles are copied as halves, two elements each; beyond K they are zeros.
  const __half *none = reinterpret_cast<const __half *>(w);
  const SwizzledKTile<__half, C::BM, L::threads> kTileX(reinterpret_cast<const __half *>(x), row0,
                                                        m, k / 2);
  const SwizzledKTile<__half, C::BN, L::threads> kTileW(none, col0, n, k / 2);
  auto buffer = [&](int kTile) { return shared + kTile % C::Stages * L::kTileBytes; };
  auto loadX = [&](int kTile) {
    if (kTile < kTiles)
      kTileX.load(reinterpret_cast<__half *>(buffer(kTile)), (kBegin + kTile * L::BK) / 2, kEnd / 2,
                  none);
  };
  auto loadW = [&](int kTile) {
    if (kTile < kTiles)
      kTileW.load(reinterpret_cast<__half *>(buffer(kTile) + C::BM * L::BK),
                  (kBegin + kTile * L::BK) / 2, kEnd / 2, none);
  };

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

  float acc[1][L::tiles][4] = {};
  int sums[L::tiles][4] = {};
  for (int kTile = 0; kTile < kTiles; kTile++) {
    copyAsyncWait<L::ahead - 1>();
    // What cp.async wrote is read by wgmma, through another proxy.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const u64 a = swizzledOperand(buffer(kTile) + group * 64 * L::BK),
              b = swizzledOperand(buffer(kTile) + C::BM * L::BK);
    // All warpgroups have ended the k-tile before, whose buffer is filled again.
    auto loadNext = [&] {
      loadW(kTile + L::ahead);
      loadX(kTile + L::ahead);
      copyAsyncCommit();
    };
    if constexpr (C::XGroup == 0) {
      wgmmaFence();
#pragma unroll
      for (int kk = 0; kk < L::BK; kk += 32)
        wgmmaInt8<true>(sums, a + kk / 16, b + kk / 16); // in 16-byte units
      wgmmaCommit();
      loadNext();
      wgmmaWait<0>();
    } else {
#pragma unroll
      for (int first = 0; first < L::BK; first += C::XGroup) {
        wgmmaFence();
        wgmmaInt8<false>(sums, a + first / 16, b + first / 16);
#pragma unroll
        for (int kk = first + 32; kk < first + C::XGroup; kk += 32)
          wgmmaInt8<true>(sums, a + kk / 16, b + kk / 16);
        wgmmaCommit();
        if (first == 0)
          loadNext();
        const int index = min((kBegin + kTile * L::BK + first) / C::XGroup, groups - 1);
        float scale[2];
#pragma unroll
        for (int h = 0; h < 2; h++)
          scale[h] =
              xScale[(i64)min(warpRow + h * 8 + threadIdx.x % 32 / 4, m - 1) * groups + index];
        wgmmaWait<0>();
        addSums(acc[0], sums, scale);
      }
    }
  }
  if constexpr (C::XGroup == 0) {
    pinSums(sums);
#pragma unroll
    for (int j = 0; j < L::tiles; j++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        acc[0][j][e] = (float)sums[j][e];
  }

  if constexpr (C::YGroup > 0)
    storeTileQuantised<C::YGroup>(acc, y, yScale, m, n, warpRow, col0, epilogue);
  else if constexpr (Operand<typename C::Y>::scaled && C::SplitK == 1)
    storeTileBytes(acc, y, m, n, warpRow, col0, epilogue);
  else
    storeTile<C::SplitK>(acc, y, m, n, warpRow, col0, partial,
                         counters + tileM * ((n + C::BN - 1) / C::BN) + tileN, split, epilogue);
#else
  using Other = Int8WithoutWgmma<C>;
  static_assert(LinearMma<Other>::threads == L::threads &&
                LinearMma<Other>::sharedBytes <= L::sharedBytes);
  linearMma<Other>(x, w, y, sizes, scales, splits, index, shared, epilogue);
#endif
}

} // namespace tile
} // namespace gpt2c

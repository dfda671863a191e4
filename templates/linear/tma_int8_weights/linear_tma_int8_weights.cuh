// linear for up to some hundred rows, fp16 rows and int8 weights, sm_90a alone:
// Y[M,N] = epilogue(norm(X)[M,K] * W[N,K]^T)
//
// linear_tma, whose tiles, split K, statistics and end it has, with weights that two more
// warpgroups make halves of (dequantised_k_tiles.cuh): before the predecessor has ended, as far as
// the ring goes. Scales of W are a matter of the epilogue.
//
// A norm is folded into the epilogue by statistics of the rows of X, as in linear_tma, but with a
// gain and a shift: weights are multiplied by the gain as they become halves, and rounded to fp16,
//   norm(x) W^T = (x (W gain)^T - mean c) / deviation + s,  c[n] = sum_k W[n,k] gain[k],
//   s[n] = sum_k W[n,k] shift[k];
// an RMS norm has neither c nor s.
//
// Config: Y (float or __half), P (type of gain), N, K (a multiple of 16), BM (64 or 128), BN (a
// multiple of 16 that wgmma lists), XRows (as in linear_tma), Stages (at least 3, or all k-tiles of
// a part of K), RawStages (at least 2; even, or all pairs of k-tiles of a part of K), SplitK (at
// most 8, a divisor of BN / 8 and at most ceil(K / 128)).
// Kernel: xMap X f16[M,K] in boxes of XRows rows, wMap W i8[N,K] as halves [N,K/2] in boxes of BN
// rows, y Y[M,N], m, then with a norm gain P[K] (null: ones), the statistics of X, c and s f32[N]
// (null: zeros) and epsilon, then the operands of the epilogue and of the statistics of Y.
// Grid: (ceil(M / BM), ceil(N / BN), SplitK), clusters of (1, 1, SplitK); block:
// LinearTmaInt8Weights<C>::threads; dynamic shared: LinearTmaInt8Weights<C>::sharedBytes.
// Bytes: 2 M K + N K + sizeof(Y) M N + epilogue operands; flops: 2 M N K.
#pragma once

#include "templates/linear/parts/dequantised_k_tiles.cuh"
#include "templates/linear/parts/linear_tma_tile.cuh"
#include "templates/linear/parts/operands.cuh"

namespace gpt2c {

template <typename C> struct LinearTmaInt8Weights {
  using X = __half;
  static constexpr int groups = C::BM / 64, consumers = 128 * groups, converters = 256;
  static constexpr bool whole = C::N % C::BN == 0;
  static constexpr int threads = consumers + converters + 64;
  static constexpr int kTilesBytes = C::Stages * (C::BM + C::BN) * 128;
  static constexpr int tiles = C::BN / 8, share = tiles / C::SplitK;
  static constexpr int sumsAt = kTilesBytes + C::RawStages * C::BN * 128;
  static constexpr int sharedBytes =
      sumsAt + clusterSumsBytes(C::SplitK, consumers, share) + 1024; // k-tiles begin at 1 KiB
  static constexpr int kTiles = ceilDiv(ceilDiv(C::K, 128), C::SplitK) * 2; // of a part of K
  static_assert(C::BM % 64 == 0 && C::BN % 16 == 0 && C::RawStages >= 2);
  // K-tiles are made by twos, the second while the one before the first is still multiplied.
  static_assert(C::Stages >= 3 || C::Stages == kTiles);
  static_assert(C::RawStages % (converters / 128) == 0 || C::RawStages * 2 >= kTiles,
                "a stage that is used again belongs to one converter: see DequantisedKTiles");
  static_assert(tiles % C::SplitK == 0);
};

/// FoldedNorm of a norm with a shift.
template <int Count, int Width> struct FoldedNormShift : FoldedNorm<Count, Width> {
  using Base = FoldedNorm<Count, Width>;
  const float *shiftSums; // s[n]; null: zeros

  static constexpr int columnOperands = 2;
  template <int Columns>
  __device__ __forceinline__ void stageColumns(float (*shared)[Columns], int col0, int n,
                                               int thread, int threads) {
    Base::stageColumns(shared, col0, n, thread, threads);
    if (shiftSums != nullptr)
      shiftSums = gpt2c::stageColumns(shiftSums, shared[1], col0, n, thread, threads);
  }
  template <int V>
  __device__ __forceinline__ void apply(float (&v)[V], const typename Base::Row &row,
                                        i64 col) const {
    Base::apply(v, row, col);
    if (shiftSums == nullptr)
      return;
    float s[V];
    loadFloats<V>(shiftSums + col, s);
#pragma unroll
    for (int i = 0; i < V; i++)
      v[i] += s[i];
  }
};

namespace tile {

template <typename C, typename Epilogue, typename Norm = NoNorm, typename Statistics = NoStatistics>
__device__ __forceinline__ void
linearTmaInt8Weights(const TensorMap &xMap, const TensorMap &wMap, typename C::Y *y, int m,
                     const typename C::P *gain, TileIndex index, void *dynamicShared,
                     Epilogue epilogue, Norm norm = {}, Statistics statistics = {}) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const int tileM = index.m, tileN = index.n, split = index.split;
  using L = LinearTmaInt8Weights<C>;
  using KTiles = DequantisedKTiles<typename C::W, C::BM, C::BN, C::Stages, C::RawStages,
                                   L::consumers / 32, L::converters / 128, C::XRows>;
  __shared__ typename KTiles::Barriers barriers;
  __shared__ ClusterSums<C::SplitK, L::consumers, L::share> sums;
  __shared__ alignas(
      16) float columns[maxInt(1, Epilogue::columnOperands + Norm::columnOperands)][C::BN];
  __shared__ alignas(16) __half factors[L::kTiles * 64];
  __half *const shared = alignedKTiles(dynamicShared);
  // The compiler has to see that a warp agrees on its role, or it waits after every wgmma.
  const int group = __shfl_sync(fullWarp, threadIdx.x / 128, 0);
  const int row0 = tileM * C::BM, col0 = tileN * C::BN;
  // Parts of K are equal: what the last has too many are zeros.
  constexpr int kTiles = L::kTiles;
  const KTileRange range{split * kTiles, kTiles};
  if (threadIdx.x == 0) {
    if constexpr (C::SplitK > 1)
      sums.init();
    barriers.init();
  }
  __syncthreads();
  if constexpr (C::SplitK > 1)
    sums.begin();

  if (threadIdx.x >= L::consumers) {
    if (threadIdx.x < L::consumers + L::converters) {
      if (gain != nullptr) {
        for (int i = threadIdx.x - L::consumers; i < kTiles * 64; i += L::converters)
          factors[i] = __float2half_rn(toFloat(gain[min(range.first * 64 + i, C::K - 1)]));
        asm volatile("bar.sync 2, %0;" ::"n"(L::converters) : "memory");
      }
      KTiles::convert(barriers, shared, group - L::groups, kTiles, kTiles,
                      gain != nullptr ? factors : nullptr);
    } else {
      auto place = [&](int i) { return i == 0 ? TilePlace{row0, col0} : TilePlace{-1, 0}; };
      if (threadIdx.x % 64 == 0)
        KTiles::load(barriers, shared, xMap, wMap, range, place);
      else if (threadIdx.x % 64 == 32)
        KTiles::loadRaw(barriers, shared, wMap, range, place);
      __syncwarp();
    }
    if constexpr (C::SplitK > 1)
      sums.allHaveBegun();
    return;
  }

  computeTile<C, L, kTiles>(barriers.kTiles, sums, shared, columns, y, m, row0, col0, split, group,
                            epilogue, norm, statistics);
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c

// linear for many rows with one scale each, int8 operands, sm_90a alone:
// Y[M,N] = epilogue(scales * (X[M,K] * W[N,K]^T))
//
// A block keeps all of its 128 rows of X in shared memory and takes tiles of BN columns one after
// the other, so that of a product of 4096 rows only the weights go to a multiprocessor more than
// once. Two warpgroups take turns at the tiles, so that one multiplies while the other ends its
// tile; each has two sets of 64 rows, which keep the tensor cores busy alone, with exact int32 sums
// in registers. A thread has the copy engine fill a ring of Stages slabs of W, 128 columns of K
// each, and one warp brings what the epilogue has for columns to shared memory. K is at most 2^17,
// so that no sum overflows.
//
// RowScale: sums are multiplied by xScale of their row, every other scale is a matter of the
// epilogue. YGroup 64 or 128: Y is quantised (linear_store_quantised.cuh), one scale for each
// YGroup columns of a row, which lie in one tile; with Gelu behind gelu, both in fp16. YGroup 0 and
// Y of signed char: the epilogue ends in integers, or with Gelu `given` says what gelu's results
// become.
//
// Config: Y (float, __half or signed char, the last with YGroup), N, K (a multiple of 16), BN (at most
// 144, which wgmma lists and which divides N), Stages, RowScale, YGroup, Gelu.
// Kernel: xMap X i8[M,K] in boxes of 128 rows, wMap W i8[N,K] in boxes of BN rows, y Y[M,N], m,
// with RowScale xScale f32[M], with YGroup yScale f32[M,N/YGroup], then the operands of the
// epilogue. Grid: (ceil(M / 128), parts), of which each takes its share of the tiles; block:
// LinearInt8Stationary<C>::threads; dynamic shared: LinearInt8Stationary<C>::sharedBytes. Bytes:
// M K + N K + sizeof(Y) M N + scales and epilogue operands; operations: 2 M N K.
#pragma once

#include "templates/linear/parts/linear_store.cuh"
#include "templates/linear/parts/linear_store_halves.cuh"
#include "templates/linear/parts/linear_store_quantised.cuh"
#include "templates/device/tma.cuh"
#include "templates/device/wgmma.cuh"

namespace gpt2c {

template <typename C> struct LinearInt8Stationary {
  static constexpr int BM = 128, BK = 128, slabs = ceilDiv(C::K, BK);
  static constexpr int threads = 384;
  static constexpr int xSlabBytes = BM * BK, xBytes = slabs * xSlabBytes, slabBytes = C::BN * BK;
  static constexpr int storeBytes = sizeof(typename C::Y) == 2 ? 8 * tile::halvesBytes : 0;
  // Slabs begin at 1 KiB.
  static constexpr int sharedBytes = xBytes + C::Stages * slabBytes + storeBytes + 1024;
  static_assert(C::N % C::BN == 0 && C::BN % 16 == 0 && C::BN <= 144 && C::Stages >= 2);
  static_assert(C::YGroup == 0 || C::BN % maxInt(C::YGroup, 1) == 0);
};

namespace tile {

template <typename C, typename Epilogue, typename Given = quantised::AsTheyAre>
__device__ __forceinline__ void
linearInt8Stationary(const TensorMap &xMap, const TensorMap &wMap, typename C::Y *y, int m,
                     const float *xScale, float *yScale, int tileM, int part, int parts,
                     void *dynamicShared, const Epilogue &epilogue, const Given &given = {}) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using L = LinearInt8Stationary<C>;
  constexpr int tilesN = C::N / C::BN;
  __shared__ Barrier full[C::Stages], empty[C::Stages], xFull[L::slabs];
  __shared__ Barrier staged[2], used[2], turn[2]; // of each warpgroup
  __shared__ alignas(16) float columns[2][maxInt(1, Epilogue::columnOperands)][C::BN];
  i8 *xs = reinterpret_cast<i8 *>(alignedSlabs(dynamicShared)), *ws = xs + L::xBytes;
  // The compiler has to see that a warp agrees on its role, or it waits after every wgmma.
  const int group = __shfl_sync(fullWarp, threadIdx.x / 128, 0), warp = threadIdx.x / 32;
  const int first = tilesN * part / parts, tiles = tilesN * (part + 1) / parts - first;
  if (threadIdx.x == 0) {
    for (int s = 0; s < C::Stages; s++) {
      full[s].init(1);
      empty[s].init(4);
    }
    for (int s = 0; s < L::slabs; s++)
      xFull[s].init(1);
    for (int i = 0; i < 2; i++) {
      staged[i].init(32);
      used[i].init(4);
      turn[i].init(4);
    }
    fenceBarrierInit();
  }
  __syncthreads();

  if (group == 2) {
    releaseRegisters<24>();
    if (threadIdx.x == 256) {
      // Maps count in halves.
      auto loadW = [&](int stage, int tile, int slab) {
        full[stage].expect(L::slabBytes);
        copyBox(ws + stage * L::slabBytes, wMap, (first + tile) * C::BN, slab * L::BK / 2,
                full[stage]);
      };
      constexpr int ahead = minInt(C::Stages, L::slabs);
      if (tiles > 0)
        for (int slab = 0; slab < ahead; slab++)
          loadW(slab, 0, slab);
      waitForPredecessor();
      releaseSuccessor();
      for (int slab = 0; slab < L::slabs; slab++) {
        xFull[slab].expect(L::xSlabBytes);
        copyBox(xs + slab * L::xSlabBytes, xMap, tileM * L::BM, slab * L::BK / 2, xFull[slab]);
      }
      int stage = ahead % C::Stages, round = ahead / C::Stages;
      for (int tile = 0, slab = ahead; tile < tiles; tile++, slab = 0)
        for (; slab < L::slabs; slab++) {
          if (round > 0)
            empty[stage].wait((round - 1) % 2);
          loadW(stage, tile, slab);
          if (++stage == C::Stages)
            stage = 0, round++;
        }
    } else if (warp == 9) {
      for (int tile = 0; tile < tiles; tile++) {
        if (tile > 1)
          used[tile % 2].wait((tile / 2 - 1) % 2);
        Epilogue e = epilogue;
        e.stageColumns(columns[tile % 2], (first + tile) * C::BN, C::N, threadIdx.x % 32, 32);
        copyAsyncCommit();
        copyAsyncWait<0>();
        staged[tile % 2].arrive();
      }
    }
  } else {
    claimRegisters<240>();
    waitForPredecessor();
    const int row0 = tileM * L::BM + warp % 4 * 16;
    float scale[2][2];
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int h = 0; h < 2; h++)
        scale[i][h] = C::RowScale
                          ? xScale[min(row0 + i * 64 + h * 8 + (int)threadIdx.x % 32 / 4, m - 1)]
                          : 1.0f;
    const unsigned emptyAt = keptAddress(empty), fullAt = keptAddress(full);
    const u64 x = swizzledOperand(keptAddress(xs)), w = swizzledOperand(keptAddress(ws));
    auto handBack = [&](int s) {
      if (threadIdx.x % 32 == 0)
        Barrier::arriveAt(emptyAt + s * (int)sizeof(Barrier));
    };
    for (int tile = group; tile < tiles; tile += 2) {
      int sums[2][C::BN / 8][4];
      const int col0 = (first + tile) * C::BN;
      if (tile > 0)
        turn[group].wait((tile - 1) / 2 % 2);
      // Its slabs follow those of the tile before, which have arrived when the turn comes.
      int stage = tile * L::slabs % C::Stages, parity = tile * L::slabs / C::Stages % 2, before = 0;
#pragma unroll 1 // more would need more registers than wgmma leaves
      for (int slab = 0; slab < L::slabs; slab++) {
        if (tile == group)
          xFull[slab].wait(0);
        Barrier::waitAt(fullAt + stage * (int)sizeof(Barrier), parity);
        const u64 a = x + slab * (L::xSlabBytes / 16);
        if (slab == L::slabs - 1 && threadIdx.x % 32 == 0)
          turn[1 - group].arrive();
        multiplySlab(sums[0], sums[1], a, a + 64 * L::BK / 16, w + stage * (L::slabBytes / 16),
                     slab > 0);
        wgmmaWait<1>();
        if (slab > 0)
          handBack(before);
        before = stage;
        if (++stage == C::Stages)
          stage = 0, parity ^= 1;
      }
      wgmmaWait<0>();
      handBack(before);
      Epilogue e = epilogue;
      e.stageColumns(columns[group], col0, C::N, C::BN, 1); // takes the places, copies nothing
      staged[group].wait(tile / 2 % 2);
#pragma unroll
      for (int i = 0; i < 2; i++) {
        pinSums(sums[i]);
        const int row = row0 + i * 64;
        if constexpr (C::Gelu) {
          if constexpr (Given::quantises)
            storeGeluBytes<true>(sums[i], scale[i], y, m, C::N, row, col0, e, given);
          else
            storeGeluQuantised<C::YGroup>(sums[i], scale[i], y, yScale, m, C::N, row, col0, e);
        } else if constexpr (sizeof(typename C::Y) == 2) {
          storeHalves(sums[i], scale[i], y, m, C::N, row, col0,
                      ws + C::Stages * L::slabBytes + warp * halvesBytes, e);
        } else {
          float acc[1][C::BN / 8][4];
          scaleSums(acc[0], sums[i], scale[i]);
          if constexpr (C::YGroup > 0)
            storeTileQuantised<C::YGroup>(acc, y, yScale, m, C::N, row, col0, e);
          else if constexpr (sizeof(typename C::Y) == 1)
            storeTileBytes<true>(acc, y, m, C::N, row, col0, e);
          else
            storeTile<1, 3, true>(acc, y, m, C::N, row, col0, nullptr, nullptr, 0, e);
        }
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0)
        used[group].arrive();
    }
  }
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c

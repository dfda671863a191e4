// linear for many rows with one scale each, int8 operands, sm_90a alone:
// Y[M,N] = epilogue(scales * (X[M,K] * W[N,K]^T))
//
// As linear_tma_persistent: a block takes tiles of 128 x BN one after the other, two warpgroups
// take turns at the tensor cores. Slabs have 128 columns of K. K is at most 2^17, so that no int32
// sum overflows. RowScale: they are multiplied by xScale of their row, every other scale is a
// matter of the epilogue.
//
// YGroup 64 or 128: Y is quantised, one scale for each YGroup columns of a row (int8.cuh), which
// lie in one tile. N is a multiple of YGroup, BN too.
//
// Config: Y (float or __half; signed char with YGroup), BN (a multiple of 16 that wgmma lists, at
// most 144), Stages, RowScale, YGroup.
// Kernel: xMap X i8[M,K] in boxes of 128 rows, wMap W i8[N,K] in boxes of BN rows, y Y[M,N], m, n,
// k (a multiple of 16), with RowScale xScale f32[M], with YGroup yScale f32[M,N/YGroup], then the
// operands of the epilogue. Grid, block, shared memory: as linear_tma_persistent. Bytes: M K + N K
// + sizeof(Y) M N + scales and epilogue operands; operations: 2 M N K.
#pragma once

#include "linear_int8_tma.cuh"

namespace gpt2c {

template <typename C> struct LinearInt8Persistent {
  static constexpr int BM = 128, BK = 128;
  static constexpr int threads = 384;
  static constexpr int stageBytes = (BM + C::BN) * BK;
  static constexpr int sharedBytes = C::Stages * stageBytes + 1024; // slabs begin at 1 KiB
  static_assert(C::BN % 16 == 0 && C::BN <= 144 && C::Stages >= 2);
  static_assert(C::YGroup == 0 || C::BN % maxInt(C::YGroup, 1) == 0);
};

namespace tile {

template <typename C, typename Epilogue>
__device__ __forceinline__ void
linearInt8Persistent(const TensorMap &xMap, const TensorMap &wMap, typename C::Y *y, int m, int n,
                     int k, const float *xScale, float *yScale, int block, int blocks,
                     void *dynamicShared, const Epilogue &epilogue) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using L = LinearInt8Persistent<C>;
  __shared__ Barrier full[C::Stages], empty[C::Stages], done[2];
  i8 *shared = reinterpret_cast<i8 *>(alignedSlabs(dynamicShared));
  // The compiler has to see that a warp agrees on its role, or it waits after every wgmma.
  const int group = __shfl_sync(fullWarp, threadIdx.x / 128, 0), warp = threadIdx.x / 32 % 4;
  const int slabs = (k + L::BK - 1) / L::BK;
  const int tilesM = (m + L::BM - 1) / L::BM, tiles = tilesM * ((n + C::BN - 1) / C::BN);
  if (threadIdx.x == 0) {
    for (int s = 0; s < C::Stages; s++) {
      full[s].init(1);
      empty[s].init(4);
    }
    done[0].init(4);
    done[1].init(4);
    fenceBarrierInit();
  }
  __syncthreads();

  if (group == 2) {
    releaseRegisters<24>();
    if (threadIdx.x % 128 == 0) {
      // Maps count in halves.
      auto loadX = [&](int stage, int tile, int slab) {
        copyBox(shared + stage * L::stageBytes, xMap, tile % tilesM * L::BM, slab * L::BK / 2,
                full[stage]);
      };
      auto loadW = [&](int stage, int tile, int slab) {
        full[stage].expect(L::stageBytes);
        copyBox(shared + stage * L::stageBytes + L::BM * L::BK, wMap, tile / tilesM * C::BN,
                slab * L::BK / 2, full[stage]);
      };
      const int first = min(C::Stages, slabs);
      for (int slab = 0; slab < first; slab++)
        loadW(slab, block, slab);
      waitForPredecessor();
      releaseSuccessor();
      for (int slab = 0; slab < first; slab++)
        loadX(slab, block, slab);
      int stage = first % C::Stages, round = first / C::Stages;
      for (int tile = block, slab = first; tile < tiles; tile += blocks, slab = 0)
        for (; slab < slabs; slab++) {
          if (round > 0)
            empty[stage].wait((round - 1) % 2);
          loadW(stage, tile, slab);
          loadX(stage, tile, slab);
          if (++stage == C::Stages)
            stage = 0, round++;
        }
    }
  } else {
    claimRegisters<240>();
    waitForPredecessor();
    for (int turn = group, tile = block + group * blocks; tile < tiles;
         turn += 2, tile += 2 * blocks) {
      int sums[2][1][C::BN / 8][4];
      int stage = turn * slabs % C::Stages, parity = turn * slabs / C::Stages % 2, last = stage;
      const int row0 = tile % tilesM * L::BM + warp * 16, col0 = tile / tilesM * C::BN;
      float scale[2][2];
#pragma unroll
      for (int r = 0; r < 4; r++)
        scale[r / 2][r % 2] =
            C::RowScale
                ? xScale[min(row0 + r / 2 * 64 + r % 2 * 8 + (int)threadIdx.x % 32 / 4, m - 1)]
                : 1.0f;
      // A parity tells a phase from the next alone: no waiting for slabs before the other group has
      // seen its last.
      if (turn > 0)
        done[1 - group].wait((turn - 1) / 2 % 2);
#pragma unroll 1 // more would need more registers than wgmma leaves
      for (int slab = 0; slab < slabs; slab++) {
        full[stage].wait(parity);
        const i8 *a = shared + stage * L::stageBytes;
        multiplySlab(sums[0][0], sums[1][0], a, a + 64 * L::BK, a + L::BM * L::BK, slab > 0);
        wgmmaWait<1>();
        if (slab > 0 && threadIdx.x % 32 == 0)
          empty[last].arrive();
        last = stage;
        if (++stage == C::Stages)
          stage = 0, parity ^= 1;
      }
      if (threadIdx.x % 32 == 0)
        done[group].arrive();
      wgmmaWait<0>();
      if (threadIdx.x % 32 == 0)
        empty[last].arrive();
      float acc[2][C::BN / 8][4];
#pragma unroll
      for (int half = 0; half < 2; half++) {
        pinSums(sums[half][0]);
#pragma unroll
        for (int j = 0; j < C::BN / 8; j++)
#pragma unroll
          for (int e = 0; e < 4; e++)
            acc[half][j][e] = (float)sums[half][0][j][e] * scale[half][e / 2];
      }
      if constexpr (C::YGroup > 0) {
        // One after the other: all rows at once need more registers than there are.
#pragma unroll
        for (int half = 0; half < 2; half++)
          storeTileQuantised<C::YGroup>(reinterpret_cast<float(&)[1][C::BN / 8][4]>(acc[half]), y,
                                        yScale, m, n, row0 + half * 64, col0, epilogue);
      } else {
        storeColumns<64>(acc, y, m, n, row0, col0, epilogue);
      }
    }
  }
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c

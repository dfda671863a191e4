// The ring of slabs between the copy engine and the warpgroups of a product, Y = X W^T: a slab is
// BM rows of X and, behind them, BN rows of W, 128 bytes of K each. One thread fills stage after
// stage, whole warps multiply and hand them back.
#pragma once

#include "tma.cuh"
#include "wgmma.cuh"

namespace gpt2c {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// Warps: those that hand each slab back.
template <int BM, int BN, int Stages, int Warps> struct SlabRing {
  static constexpr int slabBytes = (BM + BN) * 128;

  Barrier full[Stages], empty[Stages];

  /// By one thread; a barrier of the block has to follow.
  __device__ __forceinline__ void init() {
    for (int s = 0; s < Stages; s++) {
      full[s].init(1);
      empty[s].init(Warps);
    }
    fenceBarrierInit();
  }

  /// Has the slab at `stage` of `slabs` filled, its rows of W first.
  __device__ __forceinline__ void loadW(void *slabs, int stage, const TensorMap &map, int row,
                                        int column) {
    full[stage].expect(slabBytes);
    copyBox(static_cast<char *>(slabs) + stage * slabBytes + BM * 128, map, row, column,
            full[stage]);
  }
  __device__ __forceinline__ void loadX(void *slabs, int stage, const TensorMap &map, int row,
                                        int column) {
    copyBox(static_cast<char *>(slabs) + stage * slabBytes, map, row, column, full[stage]);
  }

  /// What whole warps take slabs with and hand them back. It keeps all addresses: computed for each
  /// slab, they take longer than the product of a small tile.
  struct Consumer {
    unsigned full, empty; // barriers of the first stage
    u64 x, w;             // operands of the first stage

    /// row: the first of X that this warpgroup multiplies.
    __device__ __forceinline__ Consumer(const SlabRing &ring, const void *slabs, int row)
        : full(keptAddress(ring.full)), empty(keptAddress(ring.empty)) {
      const unsigned first = keptAddress(slabs);
      x = swizzledOperand(first + row * 128);
      w = swizzledOperand(first + BM * 128);
    }
    __device__ __forceinline__ u64 xAt(int stage) const { return at(x, stage); }
    __device__ __forceinline__ u64 wAt(int stage) const { return at(w, stage); }
    __device__ __forceinline__ void wait(int stage, int parity) const {
      Barrier::waitAt(full + stage * (int)sizeof(Barrier), parity);
    }
    __device__ __forceinline__ void handBack(int stage) const {
      if (threadIdx.x % 32 == 0)
        Barrier::arriveAt(empty + stage * (int)sizeof(Barrier));
    }

  private:
    /// Addresses never carry into the upper half.
    __device__ __forceinline__ static u64 at(u64 operand, int stage) {
      return (operand >> 32 << 32) | ((unsigned)operand + (unsigned)stage * (slabBytes / 16));
    }
  };
};

/// multiply(slab, stage, parity) for Slabs slabs of a ring. Stages are constants: to compute the
/// place of a slab takes longer than its product. No way out between them, where the compiler would
/// wait for each.
template <int Slabs, int Stages, typename Multiply>
__device__ __forceinline__ void overSlabs(Multiply &&multiply) {
  constexpr int rounds = Slabs / Stages;
#pragma unroll 1
  for (int round = 0; round < rounds; round++)
#pragma unroll
    for (int stage = 0; stage < Stages; stage++)
      multiply(round * Stages + stage, stage, round % 2);
#pragma unroll
  for (int stage = 0; stage < Slabs % Stages; stage++)
    multiply(rounds * Stages + stage, stage, rounds % 2);
}

/// Adds up `sums` of the same thread in all Blocks of a cluster, in the order of their ranks, of which
/// each block takes its share: part = [rank Share, rank Share + Share) of the tiles. Blocks leave
/// them in shared memory, four sums of a thread together, and have to meet once more before one
/// ends or writes there again.
template <int Blocks, int Threads, int Share, int Tiles>
__device__ __forceinline__ void sumOverCluster(float (&part)[Share][4],
                                               const float (&sums)[Tiles][4], void *shared,
                                               int rank) {
  float4 *all = reinterpret_cast<float4 *>(shared) + threadIdx.x;
#pragma unroll
  for (int j = 0; j < Tiles; j++)
    all[j * Threads] = float4{sums[j][0], sums[j][1], sums[j][2], sums[j][3]};
  clusterBarrier();
#pragma unroll
  for (int s = 0; s < Blocks; s++) {
    float4 v[Share];
#pragma unroll
    for (int j = 0; j < Share; j++)
      v[j] = loadFromCluster(all + (rank * Share + j) * Threads, s);
#pragma unroll
    for (int j = 0; j < Share; j++) {
      part[j][0] += v[j].x;
      part[j][1] += v[j].y;
      part[j][2] += v[j].z;
      part[j][3] += v[j].w;
    }
  }
}

#endif

} // namespace gpt2c

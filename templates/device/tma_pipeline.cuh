// The ring of k-tiles between TMA and the warpgroups of a product, Y = X W^T: a k-tile is
// BM rows of X and, behind them, BN rows of W, 128 bytes of K each. One thread fills stage after
// stage, whole warps multiply and hand them back.
#pragma once

#include "templates/device/tma.cuh"
#include "templates/device/wgmma.cuh"

namespace gpt2c {

/// The shared memory that ClusterSums (below) takes for sums of the other blocks.
__host__ __device__ constexpr int clusterSumsBytes(int blocks, int threads, int share) {
  return (blocks - 1) * share * threads * 16;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// Warps: those that hand each k-tile back. XRows: rows of a box of X's map, BM or no fewer than X
/// has. The other rows of a k-tile hold what was there before, and nobody stores their sums: a box
/// that ends outside of the matrix takes longer.
template <int BM, int BN, int Stages, int Warps, int XRows = BM> struct KTileRing {
  static_assert(XRows <= BM && XRows % 8 == 0);
  static constexpr int kTileBytes = (BM + BN) * 128;

  Barrier full[Stages], empty[Stages];

  /// By one thread; a barrier of the block has to follow.
  __device__ __forceinline__ void init() {
    for (int s = 0; s < Stages; s++) {
      full[s].init(1);
      empty[s].init(Warps);
    }
    fenceBarrierInit();
  }

  /// Has the k-tile at `stage` of `kTiles` filled, its rows of W first.
  __device__ __forceinline__ void loadW(void *kTiles, int stage, const TensorMap &map, int row,
                                        int column) {
    full[stage].expect((XRows + BN) * 128);
    copyBox(static_cast<char *>(kTiles) + stage * kTileBytes + BM * 128, map, row, column,
            full[stage]);
  }
  __device__ __forceinline__ void loadX(void *kTiles, int stage, const TensorMap &map, int row,
                                        int column) {
    copyBox(static_cast<char *>(kTiles) + stage * kTileBytes, map, row, column, full[stage]);
  }

  /// What whole warps take k-tiles with and hand them back. It keeps all addresses: computed for
  /// each k-tile, they take longer than the product of a small tile.
  struct Consumer {
    unsigned full, empty; // barriers of the first stage
    u64 x, w;             // operands of the first stage

    /// row: the first of X that this warpgroup multiplies.
    __device__ __forceinline__ Consumer(const KTileRing &ring, const void *kTiles, int row)
        : full(keptAddress(ring.full)), empty(keptAddress(ring.empty)) {
      const unsigned first = keptAddress(kTiles);
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
      return (operand >> 32 << 32) | ((unsigned)operand + (unsigned)stage * (kTileBytes / 16));
    }
  };
};

/// multiply(k-tile, stage, parity) for KTiles k-tiles of a ring. Stages are constants: to compute
/// the place of a k-tile takes longer than its product. No way out between them, where the compiler
/// would wait for each.
template <int KTiles, int Stages, typename Multiply>
__device__ __forceinline__ void overKTiles(Multiply &&multiply) {
  constexpr int rounds = KTiles / Stages;
#pragma unroll 1
  for (int round = 0; round < rounds; round++)
#pragma unroll
    for (int stage = 0; stage < Stages; stage++)
      multiply(round * Stages + stage, stage, round % 2);
#pragma unroll
  for (int stage = 0; stage < KTiles % Stages; stage++)
    multiply(rounds * Stages + stage, stage, rounds % 2);
}

/// Sums of the same thread in all Blocks of a cluster, added up in the order of the blocks' ranks:
/// block r finishes tiles [r Share, r Share + Share), which the others send there, to memory that
/// nothing else uses.
template <int Blocks, int Threads, int Share> struct ClusterSums {
  static constexpr int bytes = clusterSumsBytes(Blocks, Threads, Share);

  Barrier arrived;

  /// By one thread; fenceBarrierInit and `begin` by all have to follow.
  __device__ __forceinline__ void init() {
    arrived.init(1);
    arrived.expect(bytes);
  }
  /// All threads of the cluster call these, the second before the first sums leave. Relaxed: an
  /// arrival that releases would wait for loads on their way.
  __device__ __forceinline__ static void begin() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  }
  __device__ __forceinline__ static void allHaveBegun() {
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
  }

  /// `memory`: `bytes` of shared memory at the same place in every block.
  __device__ __forceinline__ void
  addUp(float (&part)[Share][4], const float (&sums)[Blocks * Share][4], void *memory, int rank) {
    float4 *const mine = static_cast<float4 *>(memory) + threadIdx.x;
#pragma unroll
    for (int to = 0; to < Blocks; to++)
      if (to != rank)
        send(mine + (rank - (rank > to)) * Share * Threads, &sums[to * Share], to);
#pragma unroll
    for (int own = 0; own < Blocks; own++)
      if (own == rank)
#pragma unroll
        for (int j = 0; j < Share; j++)
#pragma unroll
          for (int e = 0; e < 4; e++)
            part[j][e] = sums[own * Share + j][e];
    arrived.wait(0);
    float4 others[Blocks - 1][Share];
#pragma unroll
    for (int s = 0; s < Blocks - 1; s++)
#pragma unroll
      for (int j = 0; j < Share; j++)
        others[s][j] = mine[(s * Share + j) * Threads];
#pragma unroll
    for (int j = 0; j < Share; j++) {
      float4 own = {part[j][0], part[j][1], part[j][2], part[j][3]}, sum = {};
#pragma unroll
      for (int s = 0; s < Blocks; s++) {
        // Registers have no index that is not constant.
        const float4 &before = others[minInt(s, Blocks - 2)][j],
                     &behind = others[maxInt(s - 1, 0)][j];
        const float4 v = s == rank ? own : s < rank ? before : behind;
        sum.x += v.x;
        sum.y += v.y;
        sum.z += v.z;
        sum.w += v.w;
      }
      part[j][0] = sum.x;
      part[j][1] = sum.y;
      part[j][2] = sum.z;
      part[j][3] = sum.w;
    }
  }

private:
  __device__ __forceinline__ void send(const float4 *memory, const float (*sums)[4], int to) const {
    const unsigned at = remote(sharedAddress(memory), to), done = remote(arrived.address(), to);
#pragma unroll
    for (int j = 0; j < Share; j++)
      gpt2c::send(at + j * Threads * (int)sizeof(float4), sums[j], done);
  }
};

#endif

} // namespace gpt2c

// linear for very few rows and very many columns, a vocabulary, from sm_90 on:
// Y[M,N] = epilogue(norm(X)[M,K] * W[N,K]^T), M <= Rows, X and W fp16 or bf16, or W int8 beside X
// in fp16
//
// The op, the parameters and the grid of linear_stream.cuh. Nothing but reading W takes time, and
// TMA reads it faster than loads into registers do: each warp has a ring of its own of
// Slots times Columns rows of W, which lie behind each other, so that a slot is one bulk copy.
// Those of all slots are on their way before the kernel waits for its predecessor, and nobody but
// the warp waits for them. X, normalised, is in registers, a lane's share of each row; a column is
// the sum over the lanes, those of all columns of a slot are added up together.
//
// Config: as linear_stream.cuh, with Rows 1, 2 or 4, Columns (a power of two, Rows * Columns at
// most 32) and Slots; K is a multiple of 8, of 16 for int8 W.
// Grid: any; block: 32 * Warps; dynamic shared: LinearStreamRing<C>::sharedBytes.
// Bytes: sizeof(W) N K + 2 M K + M N sizeof(Y); flops: 2 M N K.
#pragma once

#include "templates/device/tma.cuh"
#include "templates/linear/parts/operands.cuh"
#include "templates/linear/stream/linear_stream.cuh"

namespace gpt2c {

template <typename C> struct LinearStreamRing {
  static constexpr int threads = 32 * C::Warps;
  static constexpr int slotElements = C::Columns * C::K;
  static constexpr int sharedBytes =
      C::Warps * C::Slots * slotElements * (int)sizeof(typename C::W);
  static_assert(C::K * sizeof(typename C::W) % 16 == 0 && C::Rows * C::Columns <= 32);
};

/// Sums over the lanes of a warp: lane i gets that of v[i / (32 / Count)].
template <int Count> __device__ __forceinline__ float laneSums(float (&v)[Count]) {
  const int lane = threadIdx.x % 32;
  int count = Count;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    count /= 2;
    if (count > 0) {
      const bool upper = lane & step;
#pragma unroll
      for (int i = 0; i < Count / 2; i++)
        if (i < count) {
          const float sent = upper ? v[i] : v[i + count];
          v[i] = (upper ? v[i + count] : v[i]) + __shfl_xor_sync(fullWarp, sent, step);
        }
    } else {
      v[0] += __shfl_xor_sync(fullWarp, v[0], step);
    }
  }
  return v[0];
}

namespace tile {

template <typename C, typename Epilogue>
__device__ __forceinline__ void
linearStreamRing(const typename C::X *x, const typename C::W *__restrict__ w, typename C::Y *y,
                 Extent extent, RowNorm<typename C::P> norm, Largest largest, Turn turn,
                 void *dynamicShared, const Epilogue &epilogue) {
#if __CUDA_ARCH__ >= 900
  const int m = extent.m, n = extent.n;
  const typename C::P *const gain = norm.gain, *const shift = norm.shift;
  const float epsilon = norm.epsilon;
  u64 *const best = largest.best;
  const int *const choices = largest.choices;
  const int block = turn.block, blocks = turn.blocks;
  using L = LinearStreamRing<C>;
  using W = typename C::W;
  using Packs = RowPacks<C>;
  constexpr int v = Packs::v, columns = C::Columns, rows = C::Rows, share = 32 / (columns * rows);
  __shared__ Barrier filled[C::Warps][C::Slots];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  W *const slots = static_cast<W *>(dynamicShared) + warp * C::Slots * L::slotElements;
  const int groups = ceilDiv(n, columns), step = C::Warps * blocks;
  const int first = warp * blocks + block;
  auto fetch = [&](int slot, int group) {
    if (lane != 0 || group >= groups)
      return;
    const int bytes = min(columns, n - group * columns) * C::K * (int)sizeof(W);
    Barrier &barrier = filled[warp][slot];
    barrier.expect(bytes);
    copyBytes(slots + slot * L::slotElements, w + (i64)group * L::slotElements, bytes, barrier);
  };
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < C::Slots; i++)
      filled[warp][i].init(1);
    fenceBarrierInit();
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < C::Slots; i++)
    fetch(i, first + i * step);
  prefetchNorm<C>(gain, shift);
  waitForPredecessor();
  releaseSuccessor();

  float a[rows][Packs::count][v];
#pragma unroll
  for (int r = 0; r < rows; r++) {
    Packs packs;
    packs.load(x + (i64)min(r, m - 1) * C::K, gain, shift, epsilon);
#pragma unroll
    for (int i = 0; i < Packs::count; i++)
#pragma unroll
      for (int j = 0; j < v; j++)
        a[r][i][j] = Packs::inside(i) ? packs.pack[i].get(j) : 0.0f;
  }

  // A lane ends column lane / share / rows of the slot in row lane / share % rows.
  const int column = lane / share / rows, row = lane / share % rows;
  Best greatest;
  u64 key = 0;
  const SampleRow *const how = C::Best && row < m ? sampling::drawnRow(choices, row) : nullptr;
  int slot = 0, parity = 0;
#pragma unroll 1
  for (int group = first; group < groups; group += step) {
    filled[warp][slot].wait(parity);
    const W *const from = slots + slot * L::slotElements;
    float sums[columns * rows];
#pragma unroll
    for (int c = 0; c < columns; c++) {
      float acc[rows] = {};
#pragma unroll
      for (int i = 0; i < Packs::count; i++) {
        float b[v];
        if (Packs::inside(i))
          loadFloats<v>(from + c * C::K + Packs::column(i), b);
#pragma unroll
        for (int r = 0; r < rows; r++)
#pragma unroll
          for (int j = 0; j < v; j++)
            if (Packs::inside(i))
              acc[r] = fmaf(a[r][i][j], b[j], acc[r]);
      }
#pragma unroll
      for (int r = 0; r < rows; r++)
        sums[c * rows + r] = acc[r];
    }
    __syncwarp();
    fetch(slot, group + C::Slots * step);
    if (++slot == C::Slots)
      slot = 0, parity ^= 1;
    float sum[1] = {laneSums(sums)};
    const int col = group * columns + column;
    if (lane % share == 0 && row < m && col < n) {
      epilogue(sum, (i64)row, (i64)col);
      if (!C::Best || y != nullptr)
        storeFloats<1>(y + (i64)row * n + col, sum);
      if constexpr (C::Best) {
        const float stored = toFloat(fromFloat<typename C::Y>(sum[0]));
        if (how == nullptr)
          greatest.take(stored, col);
        else
          key = max(key, sampling::drawnKey(how, stored, col));
      }
    }
  }

  if constexpr (C::Best) {
    __shared__ u64 keys[C::Warps][rows];
    if (how == nullptr)
      key = greatest.index < 0 ? 0 : argmaxKey(greatest.value, greatest.index);
#pragma unroll
    for (int apart = share * rows; apart < 32; apart *= 2) {
      const u64 other = __shfl_xor_sync(fullWarp, key, apart);
      key = other > key ? other : key;
    }
    if (column == 0 && lane % share == 0)
      keys[warp][row] = key;
    __syncthreads();
    if (threadIdx.x < m) {
      key = keys[0][threadIdx.x];
#pragma unroll
      for (int i = 1; i < C::Warps; i++)
        key = keys[i][threadIdx.x] > key ? keys[i][threadIdx.x] : key;
      best[(i64)threadIdx.x * blocks + block] = key;
    }
  }
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c

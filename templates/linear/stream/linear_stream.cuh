// linear for a few rows and very many columns, a vocabulary: Y[M,N] = epilogue(norm(X)[M,K] *
// W[N,K]^T), M <= Rows, X and W fp16 or bf16, or W int8 beside X in fp16
//
// Nothing but reading W takes time, so warps do not wait for each other: each streams the weights
// of 16 columns after the other from device memory into the operand registers of the mma, Depth
// loads ahead across columns, the first ones before the kernel waits for its predecessor. The rows
// of X lie in shared memory, normalised on the way when a norm is fused. Operands as in
// linear_rows: columns of Y are the mma's rows, and thread t of a quad takes 16 bytes of
// neighbouring k.
//
// Best: each block also leaves the largest of its results in each row, as argmaxKey
// (token_ops.cuh), so that the greedy choice needs no pass over Y; y may be null then. Of rows that
// `choices` has drawn it leaves the keys of sample_row.cuh.
//
// Config: X (__half or __nv_bfloat16), W (X's type, or signed char beside __half), Y (float or X's
// type), P (type of gain and shift), Rows (8, 16, 32 or 64), Warps, K (static, a multiple of 32, or
// 64 for int8 W), Norm (NormKind), Best.
// Kernel: x X[M,K], w W[N,K], y Y[M,N], m, n, then with a norm gain P[K], shift P[K] (null:
// none), epsilon, then with Best best u64[M, blocks] and choices SampleRow[M] or null; then the
// operands of the epilogue.
// Grid: any; block: 32 * Warps; dynamic shared: LinearStream<C>::sharedBytes.
// Bytes: sizeof(W) N K + 2 M K + M N sizeof(Y); flops: 2 M N K.
#pragma once

#include "templates/linear/parts/normalised_rows.cuh"
#include "templates/linear/parts/operands.cuh"
#include "templates/linear/rows/linear_rows.cuh"
#include "templates/tokens/token_ops.cuh"

namespace gpt2c {

template <typename C> struct LinearStream {
  static constexpr int threads = 32 * C::Warps;
  static constexpr int tiles = C::Rows / 8;
  static constexpr int unit = elementsPer16Bytes<typename C::W>();
  static constexpr int packs = unit / 8; // of eight k in a load
  static constexpr int chunk = 4 * unit; // k of a quad's load
  static constexpr int chunks = C::K / chunk;
  static constexpr int depthOf(int most) {
    while (chunks % most != 0)
      most--;
    return most;
  }
  static constexpr int depth = depthOf(8); // loads ahead
  // Two rows, read together, lie in different banks.
  static constexpr int rowStride = ceilDiv(C::K, 64) * 64 + (packs == 1 ? 32 : 8);
  static constexpr int sharedBytes = C::Rows * rowStride * 2;
  static_assert(C::K % chunk == 0 && C::Rows % 8 == 0);
};

/// The largest value so far and where it was.
struct Best {
  float value = 0.0f;
  int index = -1;

  __device__ __forceinline__ void take(float v, int at) {
    if (v > value || (index < 0 && v == v)) {
      value = v;
      index = at;
    }
  }
};

namespace tile {

template <typename C, typename Epilogue>
__device__ __forceinline__ void
linearStream(const typename C::X *x, const typename C::W *__restrict__ w, typename C::Y *y,
             Extent extent, RowNorm<typename C::P> norm, Largest largest, Turn turn,
             typename C::X *shared, const Epilogue &epilogue) {
  const int m = extent.m, n = extent.n;
  const typename C::P *const gain = norm.gain, *const shift = norm.shift;
  const float epsilon = norm.epsilon;
  u64 *const best = largest.best;
  const int *const choices = largest.choices;
  const int block = turn.block, blocks = turn.blocks;
  using L = LinearStream<C>;
  using W = typename C::W;
  constexpr int tiles = L::tiles, depth = L::depth;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = lane / 4, member = lane % 4;
  const int stride = 16 * C::Warps * blocks; // columns between two turns of a warp
  int col0 = 16 * (warp * blocks + block);

  uint4 a[depth][2];
  // Columns outside are the last one again: their sums are not stored.
  auto address = [&](int col, int h) {
    return w + (i64)min(col + h * 8 + row, n - 1) * C::K + member * L::unit;
  };
  auto fetch = [&](int u, const W *const(&from)[2], int chunk) {
#pragma unroll
    for (int h = 0; h < 2; h++)
      a[u][h] = loadPackStreaming<L::unit>(from[h] + chunk * L::chunk).raw;
  };
  const W *from[2] = {address(col0, 0), address(col0, 1)};
#pragma unroll
  for (int u = 0; u < depth; u++)
    fetch(u, from, u);
  prefetchNorm<C>(gain, shift);
  waitForPredecessor();
  releaseSuccessor();
  stageRows<C, L::rowStride>(shared, x, m, gain, shift, epsilon);
  __syncthreads();

  Best greatest[tiles][2]; // of rows t * 8 + member * 2 and the next
  __shared__ u64 keys[C::Best ? C::Warps : 1][C::Best ? C::Rows : 1];
  if (C::Best && choices != nullptr) {
    for (int r = lane; r < C::Rows; r += 32)
      keys[warp][r] = 0;
    __syncwarp();
  }
  for (; col0 < n; col0 += stride) {
    float acc[tiles][4] = {};
#pragma unroll 1
    for (int first = 0; first < L::chunks; first += depth) {
      const bool last = first + depth == L::chunks;
      const W *next[2];
#pragma unroll
      for (int h = 0; h < 2; h++)
        next[h] = last ? address(col0 + stride, h) : from[h] + (first + depth) * L::chunk;
#pragma unroll
      for (int u = 0; u < depth; u++) {
        uint4 b[tiles][L::packs];
#pragma unroll
        for (int t = 0; t < tiles; t++)
#pragma unroll
          for (int p = 0; p < L::packs; p++)
            b[t][p] = loadPack<8>(shared + min(t * 8 + row, m - 1) * L::rowStride +
                                  (first + u) * L::chunk + member * L::unit + p * 8)
                          .raw;
#pragma unroll
        for (int p = 0; p < L::packs; p++) {
          uint4 weights[2];
#pragma unroll
          for (int h = 0; h < 2; h++) {
            Pack<W, 8> pack;
            if constexpr (L::packs == 1)
              pack.raw = a[u][h];
            else
              pack.raw = p == 0 ? uint2{a[u][h].x, a[u][h].y} : uint2{a[u][h].z, a[u][h].w};
            weights[h] = rowsOperand<false>(pack, 1.0f);
          }
#pragma unroll
          for (int t = 0; t < tiles; t++)
            rowsProduct<typename C::X>(acc[t], weights, b[t][p]);
        }
        fetch(u, next, u);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
      from[h] = address(col0 + stride, h);
      const int col = col0 + h * 8 + row;
#pragma unroll
      for (int t = 0; t < tiles; t++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const int r = t * 8 + member * 2 + e;
          if (r >= m || col >= n)
            continue;
          float v[1] = {acc[t][h * 2 + e]};
          epilogue(v, (i64)r, (i64)col);
          if (!C::Best || y != nullptr)
            storeFloats<1>(y + (i64)r * n + col, v);
          if constexpr (C::Best) {
            const float stored = toFloat(fromFloat<typename C::Y>(v[0]));
            greatest[t][e].take(stored, col);
            if (choices != nullptr)
              if (const SampleRow *how = sampling::drawnRow(choices, r))
                atomicMax(&keys[warp][r], sampling::drawnKey(how, stored, col));
          }
        }
    }
  }

  if constexpr (C::Best) {
#pragma unroll
    for (int t = 0; t < tiles; t++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const Best &b = greatest[t][e];
        u64 key = b.index < 0 ? 0 : argmaxKey(b.value, b.index);
#pragma unroll
        for (int step = 4; step < 32; step *= 2) {
          const u64 other = __shfl_xor_sync(fullWarp, key, step);
          key = other > key ? other : key;
        }
        const int r = t * 8 + member * 2 + e;
        if (row == 0 && (r >= m || sampling::drawnRow(choices, r) == nullptr))
          keys[warp][r] = key;
      }
    __syncthreads();
    for (int r = threadIdx.x; r < m; r += L::threads) {
      u64 key = keys[0][r];
#pragma unroll
      for (int i = 1; i < C::Warps; i++)
        key = keys[i][r] > key ? keys[i][r] : key;
      best[(i64)r * blocks + block] = key;
    }
  }
}

} // namespace tile
} // namespace gpt2c

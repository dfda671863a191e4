// linear for some rows, shared by a cluster: Y[M,N] = epilogue(norm(X)[M,K] * W[N,K]^T), M <= Rows, X
// fp16 and W fp16 or int8, sm_90a only
//
// Between few rows, which only wait for W, and many, which fill the tensor cores, the rows of X that
// every block has to read take longest. So the blocks of a cluster share K: each reads its slice of
// all rows and of the columns of the cluster, multiplies, and sends each of the others the sums of the
// rows which that one finishes, straight from the accumulators through distributed shared memory.
//
// 64 columns of Y are the rows of wgmma's A operand, in registers, and the rows of X, in shared
// memory, its columns: W goes from device memory into the operand registers, before the kernel waits
// for its predecessor, and int8 weights become halves there, once for all rows. The order of K within
// a sum is free as long as W and X agree: thread t of a quad loads 8 neighbouring k of W and feeds
// four of them at a time to one wgmma, k slots 2t, 2t+1, 2t+8, 2t+9, and X is stored in that order.
// The two columns that a thread has of a warp's 16 are neighbours.
//
// A norm is taken out of the sums:
//   norm(x) W^T = ((x gain) W^T - mean c) / deviation + s,  c[n] = sum_k gain[k] W[n,k],
//   s[n] = sum_k shift[k] W[n,k],  x gain rounded to fp16;
// each block adds up its slice of x and x^2 while the tensor cores multiply. One scale of int8
// weights for a column is a matter of the epilogue.
//
// Config: W (__half or signed char), Y (float or __half), P (type of gain), Rows (8, 16, 32, 64 or
// 128), Groups (of 64 columns of a block), Parts (of K within a block, a warpgroup each), Splits
// (blocks of a cluster, a power of two of at most 8 and Rows / 2), V (1, or 2 when n is even), K
// (static, a multiple of 8), Norm (NormKind), Statistics (V 2, n a multiple of 64): those of each 64
// columns of Y are written for the product that norms it (row_statistics.cuh).
// Kernel: x f16[M,K], w W[N,K], y Y[M,N], m, n, then with a norm gain P[K] (null: ones), rowSums
// f32[N], c, shiftSums f32[N], s (null: zeros), epsilon; then the operands of the epilogue, then with
// Statistics yStatistics f32x2[N/64,M].
// Grid: (Splits, ceil(N / LinearCluster<C>::columns)); block: LinearCluster<C>::threads; dynamic
// shared: LinearCluster<C>::sharedBytes. Bytes: sizeof(W) N K + 2 M K + M N sizeof(Y); flops: 2 M N K.
#pragma once

#include "templates/linear/rows/linear_rows.cuh"
#include "templates/linear/parts/row_statistics.cuh"
#include "templates/device/wgmma.cuh"

namespace gpt2c {

template <typename C> struct LinearCluster {
  static constexpr int threads = 128 * C::Groups * C::Parts;
  static constexpr int columns = 64 * C::Groups;
  static constexpr int tiles = C::Rows / 8;
  static constexpr int chunk = 32;                                                   // k of a quad's loads
  static constexpr int chunks = ceilDiv(ceilDiv(C::K, chunk), C::Parts * C::Splits); // of a warpgroup
  static constexpr int slice = chunks * C::Parts * chunk;                            // k of a block
  static constexpr int slabs = ceilDiv(slice, 64);
  static constexpr int ownRows = C::Rows / C::Splits; // that a block of the cluster finishes
  static constexpr int sources = C::Parts * C::Splits;
  static constexpr bool norm = C::Norm != NormKind::None;
  // Eight lanes copy 64 k of a row.
  static constexpr int copiers = threads / 8;
  static constexpr int perRow = maxInt(1, copiers / C::Rows); // that share a row
  static constexpr int rowTurns = ceilDiv(C::Rows, copiers), slabTurns = ceilDiv(slabs, perRow);
  // In shared memory, in bytes: the slice of X, sums, sums of rows and their squares.
  static constexpr int ofX = slabs * C::Rows * 128;
  static constexpr int ofSums = sources * ownRows * columns * 4;
  static constexpr int ofNorm = norm ? C::Splits * perRow * ownRows * 8 : 0;
  static constexpr int sharedBytes = 1024 + ofX + ofSums + ofNorm;
  static_assert(C::Rows % 8 == 0 && C::K % 8 == 0 && ownRows % 2 == 0 && ownRows * C::Splits == C::Rows);
};

namespace tile {

template <typename C, typename Epilogue>
__device__ __forceinline__ void
linearCluster(const __half *x, const typename C::W *__restrict__ w, typename C::Y *y, int m, int n,
              const typename C::P *__restrict__ gain, const float *__restrict__ rowSums,
              const float *__restrict__ shiftSums, float epsilon, int split, int tileN, int tileM,
              void *dynamicShared, const Epilogue &epilogue, float2 *yStatistics) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using L = LinearCluster<C>;
  using W = typename C::W;
  constexpr int chunks = L::chunks, tiles = L::tiles, v = C::V;
  const int group = threadIdx.x / 128 % C::Groups, part = threadIdx.x / 128 / C::Groups;
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int quad = lane / 4, member = lane % 4;
  const int col0 = tileN * L::columns, row0 = tileM * C::Rows;
  const int slice0 = split * L::slice, part0 = slice0 + part * chunks * L::chunk;
  constexpr bool ragged = C::K % (L::slice * C::Splits) != 0;

  char *const slabs = reinterpret_cast<char *>(alignedSlabs(dynamicShared));
  float4 *const sums = reinterpret_cast<float4 *>(slabs + L::ofX);
  float2 *const statistics = reinterpret_cast<float2 *>(slabs + L::ofX + L::ofSums);
  __shared__ Barrier arrived;
  if (threadIdx.x == 0) {
    arrived.init(1);
    fenceBarrierInit();
    arrived.expect(L::ofSums + L::ofNorm);
  }
  // Relaxed: a releasing arrival would wait for the weights, and the fence above is enough.
  if constexpr (C::Splits > 1)
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");

  // Columns and rows outside are those of the last one: their sums are not stored.
  const int pair = group * 32 + warp * 8 + quad; // of columns
  Pack<W, 8> raw[chunks][2];
#pragma unroll
  for (int u = 0; u < chunks; u++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const i64 column = min(col0 + pair * 2 + h, n - 1);
      int k = part0 + u * L::chunk + member * 8;
      k = ragged && k >= C::K ? 0 : k;
      raw[u][h] = loadPackStreaming<8>(w + column * C::K + k);
    }
  const int copier = threadIdx.x / 8, unit = threadIdx.x % 8;
  auto copiedRow = [&](int i) { return copier % C::Rows + i * L::copiers; };
  auto copiedSlab = [&](int j) { return copier / C::Rows + j * L::perRow; };
  auto copiedK = [&](int j) { return min(slice0 + copiedSlab(j) * 64 + unit * 8, C::K - 8); };
  __half2 gains[L::slabTurns][4];
  if (threadIdx.x < L::columns && col0 + (int)threadIdx.x < n)
    epilogue.prefetchColumn(col0 + threadIdx.x);
  if constexpr (L::norm) {
    if (threadIdx.x < L::columns && col0 + (int)threadIdx.x < n) {
      prefetch(rowSums + col0 + threadIdx.x);
      if (shiftSums != nullptr)
        prefetch(shiftSums + col0 + threadIdx.x);
    }
    if (gain != nullptr)
#pragma unroll
      for (int j = 0; j < L::slabTurns; j++) {
        float g[8];
        loadFloats<8>(gain + copiedK(j), g);
#pragma unroll
        for (int e = 0; e < 4; e++)
          gains[j][e] = __floats2half2_rn(g[2 * e], g[2 * e + 1]);
      }
  }
  uint4 a[chunks][2];
  auto prepare = [&] {
#pragma unroll
    for (int u = 0; u < chunks; u++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        a[u][h] = rowsOperand<false>(raw[u][h], 1.0f);
        if (ragged && part0 + u * L::chunk + member * 8 >= C::K)
          a[u][h] = uint4{};
      }
  };
  // What takes instructions is done while others still work.
  if constexpr (sizeof(W) == 1)
    prepare();
  const __half *from[L::rowTurns][L::slabTurns];
#pragma unroll
  for (int i = 0; i < L::rowTurns; i++)
#pragma unroll
    for (int j = 0; j < L::slabTurns; j++) {
      from[i][j] = x + (i64)min(row0 + copiedRow(i), m - 1) * C::K + copiedK(j);
      asm volatile("" : "+l"(from[i][j]));
    }
  waitForPredecessor();
  releaseSuccessor();

  auto copies = [&](int i, int j) {
    return copier / C::Rows < L::perRow && copiedRow(i) < C::Rows &&
           copiedSlab(j) * 64 + unit * 8 < L::slice;
  };
  uint4 copied[L::rowTurns][L::slabTurns];
#pragma unroll
  for (int i = 0; i < L::rowTurns; i++)
#pragma unroll
    for (int j = 0; j < L::slabTurns; j++)
      copied[i][j] = loadFromL2(from[i][j]);

  // The results that this thread finishes: two columns of two rows.
  constexpr int pairs = L::columns / 2, items = ceilDiv(L::ownRows / 2 * pairs, L::threads);
  auto itemOf = [&](int i) { return (int)threadIdx.x + i * L::threads; };
  auto rowOf = [&](int i) { return row0 + split * L::ownRows + itemOf(i) / pairs * 2; };
  auto columnOf = [&](int i) { return col0 + itemOf(i) % pairs * 2; };
  typename Epilogue::template Operands<v> operands[items][2][2 / v];
  float ofColumns[items][2][2]; // c and s
#pragma unroll
  for (int i = 0; i < items; i++) {
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
      for (int c = 0; c < 2; c += v)
        operands[i][r][c / v] = epilogue.template load<v>(min(rowOf(i) + r, m - 1),
                                                          min(columnOf(i) + c, n - v));
    if constexpr (L::norm)
#pragma unroll
      for (int c = 0; c < 2; c++) {
        const int column = min(columnOf(i) + c, n - 1);
        ofColumns[i][c][0] = rowSums[column];
        ofColumns[i][c][1] = shiftSums != nullptr ? shiftSums[column] : 0.0f;
      }
  }

  const unsigned arrivedAt = sharedAddress(&arrived), sumsAt = sharedAddress(sums),
                 statisticsAt = sharedAddress(statistics);
  // Where the sums of each tile of rows go, and the barrier there.
  const int source = split * C::Parts + part;
  unsigned to[tiles], at[tiles];
#pragma unroll
  for (int j = 0; j < tiles; j++) {
    const int row = j * 8 + member * 2, owner = row / L::ownRows;
    to[j] = remote(sumsAt, owner) +
            ((source * (L::ownRows / 2) + row % L::ownRows / 2) * pairs + pair) * 16;
    at[j] = remote(arrivedAt, owner);
    asm volatile("" : "+r"(to[j]), "+r"(at[j]));
  }
  if constexpr (sizeof(W) > 1)
    prepare();
  // Words 0 to 3 of the eight k of a quad's thread t are word t of four 16-byte units.
#pragma unroll
  for (int i = 0; i < L::rowTurns; i++)
#pragma unroll
    for (int j = 0; j < L::slabTurns; j++) {
      const int row = copiedRow(i), slab = copiedSlab(j);
      if (ragged && slice0 + slab * 64 + unit * 8 >= C::K)
        copied[i][j] = uint4{};
      if (!copies(i, j))
        continue;
      unsigned words[4] = {copied[i][j].x, copied[i][j].y, copied[i][j].z, copied[i][j].w};
      if (L::norm && gain != nullptr)
#pragma unroll
        for (int q = 0; q < 4; q++) {
          const __half2 scaled = __hmul2(*reinterpret_cast<__half2 *>(&words[q]), gains[j][q]);
          words[q] = *reinterpret_cast<const unsigned *>(&scaled);
        }
      char *const to = slabs + slab * (C::Rows * 128) + row * 128 + unit % 4 * 4;
#pragma unroll
      for (int q = 0; q < 4; q++)
        *reinterpret_cast<unsigned *>(to + ((unit / 4 * 4 + q) ^ row % 8) * 16) = words[q];
    }
  fenceShared();
  __syncthreads();

  // Two sets of sums take turns where one instruction is short.
  constexpr int sets = tiles <= 4 ? 2 : 1;
  float acc[sets][tiles][4];
  wgmmaFence();
#pragma unroll
  for (int u = 0; u < chunks; u++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int step = (part * chunks + u) * 2 + half; // of 16 k
      const unsigned operand[4] = {half ? a[u][0].z : a[u][0].x, half ? a[u][1].z : a[u][1].x,
                                   half ? a[u][0].w : a[u][0].y, half ? a[u][1].w : a[u][1].y};
      wgmmaRows(acc[half % sets], operand,
                swizzledOperand(slabs + step / 4 * (C::Rows * 128)) + step % 4 * 2,
                u > 0 || half >= sets);
    }
  wgmmaCommit();

  float2 ofRows[L::rowTurns] = {}; // this thread's sums of x and x^2
  if constexpr (L::norm)
#pragma unroll
    for (int i = 0; i < L::rowTurns; i++)
#pragma unroll
      for (int j = 0; j < L::slabTurns; j++)
        if (copies(i, j)) {
          const Pack<__half, 8> pack{copied[i][j]};
#pragma unroll
          for (int e = 0; e < 8; e++) {
            ofRows[i].x += pack.get(e);
            ofRows[i].y = fmaf(pack.get(e), pack.get(e), ofRows[i].y);
          }
        }
  // Added up while wgmma works, joined while the sums are on their way.
  auto pin = [&] {
#pragma unroll
    for (int i = 0; i < L::rowTurns; i++)
      asm volatile("" : "+f"(ofRows[i].x), "+f"(ofRows[i].y));
  };
  pin();
  if constexpr (C::Splits > 1)
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); // all have begun
  wgmmaWait<0>();
#pragma unroll
  for (int j = 0; j < tiles; j++) {
    if constexpr (sets == 2)
#pragma unroll
      for (int e = 0; e < 4; e++)
        acc[0][j][e] += acc[1][j][e];
    send(to[j], acc[0][j], at[j]);
  }
  pin();
  if constexpr (L::norm)
#pragma unroll
    for (int i = 0; i < L::rowTurns; i++) {
      const float sum = warpReduce<Sum, 8>(ofRows[i].x), square = warpReduce<Sum, 8>(ofRows[i].y);
      const int row = copiedRow(i);
      if (unit == 0 && row < C::Rows && copiedSlab(0) < L::perRow) {
        const int owner = row / L::ownRows;
        send(remote(statisticsAt, owner) +
                 ((split * L::perRow + copiedSlab(0)) * L::ownRows + row % L::ownRows) * 8,
             sum, square, remote(arrivedAt, owner));
      }
    }
  arrived.wait(0);

#pragma unroll
  for (int i = 0; i < items; i++) {
    if (itemOf(i) >= L::ownRows / 2 * pairs)
      break;
    float4 sum = {};
#pragma unroll
    for (int p = 0; p < L::sources; p++) {
      const float4 other = sums[p * (L::ownRows / 2 * pairs) + itemOf(i)];
      sum.x += other.x;
      sum.y += other.y;
      sum.z += other.z;
      sum.w += other.w;
    }
    const float ofRow[2][2] = {{sum.x, sum.z}, {sum.y, sum.w}};
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int row = rowOf(i) + r;
      float mean = 0.0f, scale = 1.0f;
      if constexpr (L::norm) {
        float2 all = {};
#pragma unroll
        for (int p = 0; p < C::Splits * L::perRow; p++) {
          const float2 other = statistics[p * L::ownRows + row % L::ownRows];
          all.x += other.x;
          all.y += other.y;
        }
        mean = C::Norm == NormKind::Layer ? all.x * (1.0f / C::K) : 0.0f;
        scale = rsqrtf(fmaxf(all.y * (1.0f / C::K) - mean * mean, 0.0f) + epsilon);
      }
#pragma unroll
      for (int c = 0; c < 2; c += v) {
        float out[v];
#pragma unroll
        for (int e = 0; e < v; e++)
          if constexpr (L::norm)
            out[e] = fmaf(scale, ofRow[r][c + e] - mean * ofColumns[i][c + e][0], ofColumns[i][c + e][1]);
          else
            out[e] = ofRow[r][c + e];
        if (row >= m || columnOf(i) + c >= n)
          continue;
        epilogue.apply(out, operands[i][r][c / v]);
        storeFloats<v>(y + (i64)row * n + columnOf(i) + c, out);
        if constexpr (C::Statistics) {
          const float2 part = partStatistics<64, v, 32>(out);
          if (lane == 0)
            yStatistics[(i64)(columnOf(i) / 64) * m + row] = part;
        }
      }
    }
  }
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c

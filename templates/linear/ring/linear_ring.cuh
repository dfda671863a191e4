// linear for some rows and weights that are more than shared memory keeps on their way, from sm_90
// on: Y[M,N] = epilogue(norm(X)[M,K] * W[N,K]^T), M <= Rows, X and W fp16 or bf16, or W int8
// beside X in fp16, or of four bits
//
// The op and the parameters of linear_rows.cuh. A block has Columns columns of Y, as many as make
// one wave of blocks, whatever N is. One warp copies their weights in bulk to a ring in shared
// memory, eight columns and a part of K a slot, and waits for free slots only: what the ring holds
// is there before the predecessor has ended, and the rest follows without a pause. A ring takes
// less than half of the shared memory of a multiprocessor, so that of the next kernel fills while
// this one computes.
//
// The other warps share K, piece by piece: each has its pieces of all rows of X in registers, as
// the A operand of mma.m16n8k16; eight columns are its B operand, which a lane reads from the ring
// in 16 bytes. The order of K within a sum is free as long as both agree, so thread t of a quad
// takes neighbouring k. Rows of the ring begin off each other's banks by what a quad reads.
//
// Norm and int8 weights as in linear_rows.cuh; int8 weights have one scale for a column, which is a
// matter of the epilogue. Of four bits a piece is of one group, whose sums are multiplied by its
// scale; scales and zero points of eight columns are on their way while the eight before are
// multiplied.
//
// Splits > 1: the blocks of a cluster share K; each ends some of the columns, whose sums it gets
// from the others through distributed shared memory.
//
// An epilogue that ends with a gate needs even Columns of each block that ends some.
//
// Config: X (__half or __nv_bfloat16), W (X's type, a byte beside __half, or Int4x8), Y (float or
// X's type), Rows (8, 16 or 32), Warps, Splits, Chunks (parts of a block's K, a slot each), Slots,
// Columns, K (static; of a slot a multiple of 32, for W of a byte of 64, for Int4x8 of a piece),
// WGroup (of Int4x8: a multiple of 128, 64 or 32; else 0), WZeros, Norm (NormKind), P (type of
// gain).
// Kernel: x X[M,K], w W[N,K], y Y[M,N], m, n, then with WGroup wScale f32[N,K/WGroup], with WZeros
// wZero i8 of the same shape, then with a norm gain P[K] (null: ones), rowSums f32[N], c, shiftSums
// f32[N], s (null: zeros), epsilon; then the operands of the epilogue.
// Grid: (Splits, ceil(N / Columns)); block: LinearRing<C>::threads; dynamic shared:
// LinearRing<C>::sharedBytes. Bytes: those of W + 2 M K + M N sizeof(Y); flops: 2 M N K.
#pragma once

#include "templates/linear/parts/operands.cuh"
#include "templates/linear/ring/linear_ring_sizes.cuh"

namespace gpt2c {

namespace tile {

/// The parameters of the kernel and of the tile.
template <typename C, typename Epilogue> struct LinearRingParams {
  const typename C::X *x;
  const typename C::W *w;
  typename C::Y *y;
  int m, n;
  const float *wScale;
  const i8 *wZero;
  const typename C::P *gain;
  const float *rowSums, *shiftSums;
  float epsilon;
  int split, block;
  char *shared;
  const Epilogue &epilogue;
};

#if __CUDA_ARCH__ >= 900

/// Of each slot: that it is filled, that all warps have read it.
template <typename C> struct LinearRingBarriers {
  Barrier filled[C::Slots], read[C::Slots], arrived, unused;
};

/// A block's columns; `run` has the order of its phases. A thread finishes `items` elements.
template <typename C, typename Epilogue> struct LinearRingTile {
  using L = LinearRing<C>;
  using X = typename C::X;
  using W = typename C::W;
  static constexpr int groups = L::groups, packs = L::packs;
  static constexpr int gainPack = minInt(8, elementsPer16Bytes<typename C::P>());
  static constexpr int v = epilogue::isPaired<Epilogue> ? 2 : 1; // columns that are ended together
  static constexpr int perRow = L::own / v;
  static constexpr int items = ceilDiv(C::Rows * perRow, L::computing);
  static_assert(C::Columns % v == 0 && L::own % v == 0);

  const LinearRingParams<C, Epilogue> p;
  LinearRingBarriers<C> &barriers;
  int warp, lane, row, member, col0, count; // columns from col0 on
  int slot = 0, lap = 0;                    // of the ring, next, and its parity
  float *sums, *received;
  float2 *rowMoments; // of a norm, sum and squares of each warp's part of a row

  uint4 x[C::Chunks][L::pieces][packs][groups];
  typename Epilogue::template Operands<v> operands[items];
  float ofColumns[items][v][2] = {}; // c and s
  /// Of the lane's pieces of eight columns: scales of columns 2 member and the next, and the zero
  /// point of column row.
  struct Scales {
    float scale[2];
    int zero;
  };
  struct TileScales {
    Scales of[L::grouped ? C::Chunks : 1][L::grouped ? L::pieces : 1];
  } scales;

  __device__ __forceinline__ LinearRingTile(const LinearRingParams<C, Epilogue> &p,
                                            LinearRingBarriers<C> &barriers)
      : p(p), barriers(barriers) {
    warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    row = lane / 4, member = lane % 4;
    col0 = p.block * C::Columns;
    count = min(C::Columns, p.n - col0);
    sums = reinterpret_cast<float *>(p.shared + C::Slots * L::slotBytes);
    received = sums + L::sums;
    rowMoments = reinterpret_cast<float2 *>(received + L::received);
  }

  __device__ __forceinline__ void run() {
    begin();
    if (warp == C::Warps) {
      stream();
      if constexpr (C::Splits > 1)
        asm volatile("barrier.cluster.wait;" ::: "memory");
      return;
    }
    fetchColumns();
    fetchScales(0);
    waitForPredecessor();
    releaseSuccessor();
    fetchRows();
    fetchOperands();
    takeNorm();
    arrange();
#pragma unroll 1
    for (int tile = 0; tile * 8 < count; tile++)
      multiply(tile);
    sync();
    if constexpr (C::Splits > 1)
      exchange();
    finish();
  }

  __device__ __forceinline__ void begin() {
    if (threadIdx.x == 0) {
      for (int i = 0; i < C::Slots; i++) {
        barriers.filled[i].init(1);
        barriers.read[i].init(C::Warps);
      }
      barriers.arrived.init(1);
      fenceBarrierInit();
      if constexpr (C::Splits > 1)
        barriers.arrived.expect((C::Splits - 1) * p.m * L::own * 4);
    }
    __syncthreads();
    // Relaxed: the fence above is enough, and a releasing arrival would keep the weights waiting.
    if constexpr (C::Splits > 1)
      asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
  }
  /// A barrier of the warps that compute.
  static __device__ __forceinline__ void sync() {
    asm volatile("barrier.sync 1, %0;" ::"n"(L::computing) : "memory");
  }
  __device__ __forceinline__ void nextSlot() {
    if (++slot == C::Slots)
      slot = 0, lap ^= 1;
  }

  // The warp that fills the ring
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ void stream() {
    int filled = 0;
#pragma unroll 1
    for (int tile = 0; tile * 8 < count; tile++) {
      const int columns = min(8, count - tile * 8);
      constexpr int each = Operand<W>::each;
      const W *from = p.w + ((i64)(col0 + tile * 8 + lane) * C::K + p.split * L::ofBlock) / each;
#pragma unroll 1
      for (int i = 0; i < C::Chunks; i++, from += L::chunk / each) {
        if (filled++ >= C::Slots)
          barriers.read[slot].wait(lap ^ 1);
        if (lane == 0)
          barriers.filled[slot].expect(columns * L::rowBytes);
        __syncwarp();
        if (lane < columns)
          copyBytes(p.shared + slot * L::slotBytes + lane * L::pitch, from, L::rowBytes,
                    barriers.filled[slot]);
        nextSlot();
      }
    }
  }

  // Rows of X
  // -----------------------------------------------------------------------------------------------

  /// Whether the warp has this piece of a slot: equal in all of its lanes.
  __device__ __forceinline__ bool inside(int piece) const {
    return L::inChunk % C::Warps == 0 || piece < L::pieces - 1 ||
           piece * C::Warps + warp < L::inChunk;
  }
  /// Where the lane's k of a piece are in a slot, eight after eight.
  __device__ __forceinline__ int at(int piece, int pack = 0) const {
    return (piece * C::Warps + warp) * L::piece + member * L::unit + pack * (L::grouped ? 32 : 8);
  }
  __device__ __forceinline__ int kOf(int chunk, int piece, int pack = 0) const {
    return p.split * L::ofBlock + chunk * L::chunk + at(piece, pack);
  }
  /// Calls do(chunk, piece, pack) for all that the warp has.
  template <typename Do> __device__ __forceinline__ void ofX(Do &&each) const {
#pragma unroll
    for (int c = 0; c < C::Chunks; c++)
#pragma unroll
      for (int i = 0; i < L::pieces; i++)
        if (inside(i))
#pragma unroll
          for (int k = 0; k < packs; k++)
            each(c, i, k);
  }
  /// Rows outside are those of the last one: they are not stored.
  __device__ __forceinline__ void fetchRows() {
    ofX([&](int c, int i, int k) {
#pragma unroll
      for (int g = 0; g < groups; g++)
        x[c][i][k][g] = loadPack<8>(p.x + (i64)min(g * 8 + row, p.m - 1) * C::K + kOf(c, i, k)).raw;
    });
  }
  /// Takes the rows' moments and multiplies them by the gain.
  __device__ __forceinline__ void takeNorm() {
    if constexpr (L::norm) {
      constexpr unsigned one = Mma<X>::ones;
      float ofRows[groups][4] = {}; // sums of squares and sums of rows
      ofX([&](int c, int i, int k) {
#pragma unroll
        for (int g = 0; g < groups; g++)
          rowsProduct<X>(ofRows[g], {x[c][i][k][g], uint4{one, one, one, one}}, x[c][i][k][g]);
      });
#pragma unroll
      for (int g = 0; g < groups; g++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float2 &to = rowMoments[warp * C::Rows + g * 8 + member * 2 + e];
          if (row == 0)
            to.x = ofRows[g][2 + e];
          if (row == member * 2 + e)
            to.y = ofRows[g][e];
        }
      if (p.gain != nullptr)
        ofX([&](int c, int i, int k) {
          Pack<typename C::P, gainPack> gains[8 / gainPack];
#pragma unroll
          for (int j = 0; j < 8 / gainPack; j++)
            gains[j] = loadPack<gainPack>(p.gain + kOf(c, i, k) + j * gainPack);
          auto gain = [&](int j) { return gains[j / gainPack].get(j % gainPack); };
#pragma unroll
          for (int g = 0; g < groups; g++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
              unsigned &word = (&x[c][i][k][g].x)[j];
              word = Mma<X>::scaled(word, gain(2 * j), gain(2 * j + 1));
            }
        });
    }
  }

  /// Makes operands of what the loads left, so that no product has to move registers. Sixteen rows
  /// are the rows of two operands, for the first and the second half of a lane's eight k. Of eight
  /// rows both halves are in one: the first in rows 0 to 7 of it, the second in 8 to 15, and of the
  /// sums of each half those rows count.
  __device__ __forceinline__ void arrange() {
    ofX([&](int c, int i, int k) {
      if constexpr (groups == 1) {
        const uint4 v = x[c][i][k][0];
        x[c][i][k][0] = {v.x, v.z, v.y, v.w};
      } else {
#pragma unroll
        for (int g = 0; g < groups; g += 2) {
          const uint4 low = x[c][i][k][g], high = x[c][i][k][g + 1];
          x[c][i][k][g] = {low.x, high.x, low.y, high.y};
          x[c][i][k][g + 1] = {low.z, high.z, low.w, high.w};
        }
      }
    });
  }

  // Products
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ void multiply(int tile) {
    float acc[L::pairs][L::chains][4] = {};
    const TileScales ofTile = scales;
    fetchScales(tile + 1);
#pragma unroll
    for (int c = 0; c < C::Chunks; c++) {
      barriers.filled[slot].wait(lap);
      const char *const from = p.shared + slot * L::slotBytes + row * L::pitch;
#pragma unroll
      for (int i = 0; i < L::pieces; i++) {
        if (!inside(i))
          continue;
        if constexpr (L::grouped) {
          multiplyGroup(acc, c, i, from, ofTile.of[c][i]);
          continue;
        } else {
          const Pack<W, L::unit> raw =
              *reinterpret_cast<const Pack<W, L::unit> *>(from + at(i) * (int)sizeof(W));
#pragma unroll
          for (int k = 0; k < packs; k++) {
            Pack<W, 8> eight;
            if constexpr (packs == 1)
              eight.raw = raw.raw;
            else
              eight.raw = k == 0 ? uint2{raw.raw.x, raw.raw.y} : uint2{raw.raw.z, raw.raw.w};
            const uint4 w = rowsOperand<false>(eight, 1.0f);
#pragma unroll
            for (int q = 0; q < L::pairs; q++) {
              const uint4 &first = x[c][i][k][2 * q],
                          &second = x[c][i][k][minInt(2 * q + 1, groups - 1)];
              const int chain = 2 * (c * L::pieces + i + k) % L::chains;
              product(acc[q][chain], first, w.x, w.y);
              product(acc[q][chain + 1], second, w.z, w.w);
            }
          }
        }
      }
      __syncwarp();
      if (lane == 0)
        barriers.read[slot].arrive();
      nextSlot();
    }
    // acc: rows q * 16 + row and + 8, columns member * 2 and the next.
    float *const to = sums + ((warp * L::tiles + tile) * C::Rows + row) * 8 + member * 2;
#pragma unroll
    for (int q = 0; q < L::pairs; q++) {
      float sum[4] = {};
#pragma unroll
      for (int i = 0; i < L::chains; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          if (groups > 1 || e / 2 == i % 2)
            sum[groups > 1 ? e : e % 2] += acc[q][i][e];
      storeFloats<2>(to + q * 128, {sum[0], sum[1]});
      if (groups > 1)
        storeFloats<2>(to + q * 128 + 64, {sum[2], sum[3]});
    }
  }
  /// Of a piece of weights in groups, which is of one.
  __device__ __forceinline__ void multiplyGroup(float (&acc)[L::pairs][L::chains][4], int c, int i,
                                                const char *from, const Scales &of) const {
    if constexpr (L::grouped) {
      float part[L::pairs][2][4] = {};
      const unsigned bias = Operand<W>::template biasOf<X>(of.zero);
#pragma unroll
      for (int k = 0; k < packs; k++) {
        const uint4 w = Operand<W>::template pairs<X>(
            *reinterpret_cast<const unsigned *>(from + at(i, k) * Operand<W>::bits / 8), bias);
#pragma unroll
        for (int q = 0; q < L::pairs; q++) {
          product(part[q][0], x[c][i][k][2 * q], w.x, w.y);
          product(part[q][1], x[c][i][k][minInt(2 * q + 1, groups - 1)], w.z, w.w);
        }
      }
#pragma unroll
      for (int q = 0; q < L::pairs; q++)
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
          for (int e = 0; e < 4; e++)
            acc[q][h][e] = fmaf(part[q][h][e], of.scale[e % 2], acc[q][h][e]);
    }
  }
  /// Those of eight columns; columns outside are the last one.
  __device__ __forceinline__ void fetchScales(int tile) {
    if constexpr (L::grouped) {
      constexpr int ofRow = C::K / C::WGroup;
      auto columnAt = [&](int i) { return (i64)min(col0 + tile * 8 + i, p.n - 1) * ofRow; };
      const i64 first = columnAt(member * 2), second = columnAt(member * 2 + 1),
                own = columnAt(row);
#pragma unroll
      for (int c = 0; c < C::Chunks; c++)
#pragma unroll
        for (int i = 0; i < L::pieces; i++) {
          const int group = min(kOf(c, i), C::K - 1) / C::WGroup;
          Scales &to = scales.of[c][i];
          to.scale[0] = p.wScale[first + group];
          to.scale[1] = p.wScale[second + group];
          to.zero = C::WZeros ? (int)p.wZero[own + group] : 0;
        }
    }
  }
  static __device__ __forceinline__ void product(float (&sum)[4], const uint4 &a, unsigned b0,
                                                 unsigned b1) {
    const unsigned operand[4] = {a.x, a.y, a.z, a.w};
    Mma<X>::multiply(sum, operand, b0, b1);
  }
  /// The warps' sum of an element.
  __device__ __forceinline__ float blockSum(int r, int c) const {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < C::Warps; w++)
      sum += sums[((w * L::tiles + c / 8) * C::Rows + r) * 8 + c % 8];
    return sum;
  }

  // The end
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ int itemOf(int i) const { return (int)threadIdx.x + i * L::computing; }
  __device__ __forceinline__ int rowOf(int i) const { return itemOf(i) / perRow; }
  __device__ __forceinline__ int columnOf(int i) const {
    return itemOf(i) % perRow * v + p.split * L::own;
  }
  __device__ __forceinline__ void fetchColumns() {
    if ((int)threadIdx.x < count)
      p.epilogue.prefetchColumn(col0 + threadIdx.x);
    if constexpr (L::norm)
#pragma unroll
      for (int i = 0; i < items; i++)
#pragma unroll
        for (int j = 0; j < v; j++) {
          const int column = col0 + min(columnOf(i), count - v) + j;
          ofColumns[i][j][0] = p.rowSums[column];
          if (p.shiftSums != nullptr)
            ofColumns[i][j][1] = p.shiftSums[column];
        }
  }
  __device__ __forceinline__ void fetchOperands() {
#pragma unroll
    for (int i = 0; i < items; i++)
      operands[i] =
          p.epilogue.template load<v>(min(rowOf(i), p.m - 1), col0 + min(columnOf(i), count - v));
  }
  /// Split-K over a cluster: each block gets its columns from the others.
  __device__ __forceinline__ void exchange() {
    asm volatile("barrier.cluster.wait;" ::: "memory"); // all have begun
    for (int i = threadIdx.x; i < p.m * L::own * C::Splits; i += L::computing) {
      const int r = i / (L::own * C::Splits), c = i % (L::own * C::Splits), owner = c / L::own;
      const float sum[1] = {blockSum(r, min(c, C::Columns - 1))};
      float *to = received + (p.split * C::Rows + r) * L::own + c % L::own;
      if (owner == p.split)
        *to = sum[0];
      else
        sendToCluster(to, sum, owner, barriers.arrived);
    }
    sync();
    barriers.arrived.wait(0);
  }
  __device__ __forceinline__ float clusterSum(int r, int c) const {
    float sum = 0.0f;
#pragma unroll
    for (int s = 0; s < C::Splits; s++)
      sum += received[(s * C::Rows + r) * L::own + c % L::own];
    return sum;
  }
  __device__ __forceinline__ float normalised(int i, int j, int r, float sum) const {
    float2 row = {};
#pragma unroll
    for (int w = 0; w < C::Warps; w++) {
      const float2 part = rowMoments[w * C::Rows + r];
      row.x += part.x;
      row.y += part.y;
    }
    const float mean = C::Norm == NormKind::Layer ? row.x * (1.0f / C::K) : 0.0f;
    const float variance = fmaxf(row.y * (1.0f / C::K) - mean * mean, 0.0f);
    return fmaf(rsqrtf(variance + p.epsilon), sum - mean * ofColumns[i][j][0], ofColumns[i][j][1]);
  }
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int i = 0; i < items; i++) {
      const int r = rowOf(i), c = columnOf(i);
      if (r >= p.m || c >= count)
        continue;
      float sum[v];
#pragma unroll
      for (int j = 0; j < v; j++) {
        sum[j] = C::Splits == 1 ? blockSum(r, c + j) : clusterSum(r, c + j);
        if constexpr (L::norm)
          sum[j] = normalised(i, j, r, sum[j]);
      }
      p.epilogue.apply(sum, operands[i]);
      epilogue::storeResults<Epilogue>(p.y, (i64)r, p.n, col0 + c, sum);
    }
  }
};
#endif

template <typename C, typename Epilogue>
__device__ __forceinline__ void
linearRing(const typename C::X *x, const typename C::W *__restrict__ w, typename C::Y *y,
           Extent extent, WeightScales scales, NormSums<typename C::P> norm, int split, int block,
           char *shared, const Epilogue &epilogue) {
#if __CUDA_ARCH__ >= 900
  const int m = extent.m, n = extent.n;
  const typename C::P *const gain = norm.gain;
  const float *const rowSums = norm.rowSums, *const shiftSums = norm.shiftSums;
  const float epsilon = norm.epsilon;
  // Not static: with that launches would need more than the shared memory that they say.
  using L = LinearRing<C>;
  auto &barriers =
      *reinterpret_cast<LinearRingBarriers<C> *>(shared + L::sharedBytes - L::barriers);
  static_assert(sizeof(barriers) == L::barriers && (L::sharedBytes - L::barriers) % 8 == 0);
  LinearRingTile<C, Epilogue> tile({x, w, y, m, n, scales.scale, scales.zero, gain, rowSums,
                                    shiftSums, epsilon, split, block, shared, epilogue},
                                   barriers);
  tile.run();
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c

// linear for some rows on tensor cores: Y[M,N] = epilogue(norm(X)[M,K] * W[N,K]^T), M <= Rows, X
// and W fp16 or bf16, or W int8 beside X in fp16
//
// For so few rows that reading W takes longest, and the way from one kernel to the next second
// longest. Sixteen columns of Y are the 16 rows of the mma's A operand, eight rows of X its 8
// columns, so few rows waste nothing. Both go straight into the operand registers: the order of K
// within a sum is free as long as W and X agree, so thread t of a quad takes 8 neighbouring k in
// one load, or of four bits up to 32, and feeds four of them at a time to one mma.m16n8k16: k slots
// 2t, 2t+1, 2t+8, 2t+9. The
// warps of a block split K and add their accumulators in order through shared memory. W is on its
// way before the kernel waits for its predecessor; then X and the operands of the epilogue are, and
// only then anything is used.
//
// A norm is folded into the epilogue, so that rows need not be known before they are multiplied:
//   norm(x) W^T = rstd ((x gain) W^T - mean c) + s,  c[n] = sum_k gain[k] W[n,k],
//   s[n] = sum_k shift[k] W[n,k],  x gain rounded to X's type.
// The mma of eight rows of X with themselves has their sums of squares on its diagonal, that with
// rows of ones their sums.
//
// int8 weights become halves in registers, which is exact; with WGroup > 0 (a multiple of 32 that
// divides K) they are multiplied by wScale of column and group there and rounded, one scale for a
// column is a matter of the epilogue. Weights of four bits, less their zero points, become halves
// or bfloat16 so, too, and those of a group are summed up before its scale multiplies the sums.
//
// Splits > 1 (sm_90 or later): the blocks of a cluster share K; each gets some of the rows from the
// others, through distributed shared memory.
//
// An epilogue that ends with a gate needs V = 2.
//
// Config: X (__half or __nv_bfloat16), W (X's type, or Int4x8, or a byte beside __half), Y (float
// or X's type), Rows (8, 16, 32 or 64), Groups (of 16 columns of a block), Warps, Splits (a power
// of two of at most 8; 1 with a norm), V (1, or 2 when n is even), K (static, a multiple of 8),
// WGroup, WZeros (of Int4x8), Norm (NormKind), P (type of gain).
// Kernel: x X[M,K], w W[N,K], y Y[M,N], m, n, then with WGroup wScale f32[N,K/WGroup], with WZeros
// wZero i8 of the same shape (without WGroup i8[N]), then with a norm gain P[K] (null: ones), rowSums f32[N], c, shiftSums f32[N], s (null: zeros), epsilon;
// then the operands of the epilogue.
// Grid: (Splits, ceil(N / LinearRows<C>::columns)); block: LinearRows<C>::threads; dynamic shared:
// LinearRows<C>::sharedBytes. Bytes: those of W + 2 M K + M N sizeof(Y); flops: 2 M N K.
#pragma once

#include "templates/device/int8.cuh"
#include "templates/device/mma.cuh"
#include "templates/device/tma.cuh"
#include "templates/linear/parts/epilogue.cuh"
#include "templates/linear/parts/normalised_rows.cuh"
#include "templates/linear/parts/operands.cuh"

namespace gpt2c {

template <typename C> struct LinearRows {
  static constexpr int threads = 32 * C::Warps;
  static constexpr int columns = 16 * C::Groups;
  static constexpr int tiles = C::Rows / 8;
  static constexpr int each = Operand<typename C::W>::each; // elements in a W
  static constexpr bool nibbles = each > 1;
  /// Of eight k in a lane's load: of four bits up to 16 bytes, of one group, as far as warps have
  /// as many and rows of X have room.
  static constexpr int packsOf() {
    int packs = nibbles ? 4 : 1;
    while (packs > 1 && (packs * tiles > 8 || C::K % (8 * packs) != 0 ||
                         C::WGroup % (32 * packs) != 0 || C::K < 32 * packs * C::Warps * C::Splits))
      packs /= 2;
    return packs;
  }
  static constexpr int packs = packsOf(), unit = 8 * packs;
  static constexpr int chunk = 4 * unit; // k of a quad's loads
  static constexpr int chunks = ceilDiv(ceilDiv(C::K, chunk), C::Warps *C::Splits); // of a warp
  static constexpr int room = nibbles ? (tiles > 2 ? 4 : 16 / tiles) / packs : tiles > 4 ? 4 : 6;
  static constexpr int ahead =
      minInt(chunks, maxInt(1, room / C::Groups)); // chunks whose loads are in flight
  static constexpr int stride = 20; // of a row of 16 columns: no two lanes in one bank
  static constexpr int ownRows = C::Rows / C::Splits; // that a block of the cluster finishes
  static constexpr bool norm = C::Norm != NormKind::None;
  // In shared memory, in floats: accumulators, then what other blocks send, or the norm's moments.
  static constexpr int sums = C::Warps * C::Groups * C::Rows * stride;
  static constexpr int received = columns * (C::Splits > 1 ? C::Rows : 0);
  static constexpr int ofNorm = norm ? C::Warps * 2 * C::Rows : 0;
  static constexpr int sharedBytes = 4 * (sums + received + ofNorm);
  static_assert(C::Rows % 8 == 0 && C::K % 8 == 0 && (C::Splits == 1 || !norm));
  static_assert(C::WGroup == 0 || (C::WGroup % chunk == 0 && C::K % maxInt(C::WGroup, 1) == 0));
  static_assert(nibbles || !C::WZeros);
};

/// Eight weights of a lane as two-byte floats, those of a byte times `scale` as halves.
template <bool Scaled, typename T>
__device__ __forceinline__ uint4 rowsOperand(const Pack<T, 8> &w, float scale) {
  if constexpr (!Operand<T>::scaled) {
    return w.raw;
  } else {
    const HalfPairs low = Operand<T>::halves(w.raw.x), high = Operand<T>::halves(w.raw.y);
    uint4 r{low.low, low.high, high.low, high.high};
    if constexpr (Scaled) {
      unsigned *words = &r.x;
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float2 v = __half22float2(*reinterpret_cast<const __half2 *>(words + i));
        words[i] = packHalves(v.x * scale, v.y * scale);
      }
    }
    return r;
  }
}

/// sum += w x^T, of eight k a lane: w are two columns, x is a row.
template <typename T = __half>
__device__ __forceinline__ void rowsProduct(float (&sum)[4], const uint4 (&w)[2], const uint4 &x) {
  const unsigned low[4] = {w[0].x, w[1].x, w[0].y, w[1].y};
  const unsigned high[4] = {w[0].z, w[1].z, w[0].w, w[1].w};
  Mma<T>::multiply(sum, low, x.x, x.y);
  Mma<T>::multiply(sum, high, x.z, x.w);
}

namespace tile {

/// The parameters of the kernel and of the tile.
template <typename C, typename Epilogue> struct LinearRowsParams {
  const typename C::X *x;
  const typename C::W *w;
  typename C::Y *y;
  int m, n;
  const float *wScale;
  const i8 *wZero;
  const typename C::P *gain;
  const float *rowSums, *shiftSums;
  float epsilon;
  int split, tileN;
  float *shared;
  const Epilogue &epilogue;
};

/// A block's columns, in phases; `run` has their order. The warps split K; a thread finishes
/// `items` items of v columns of a row.
template <typename C, typename Epilogue> struct LinearRowsTile {
  using L = LinearRows<C>;
  using X = typename C::X;
  using W = typename C::W;
  static constexpr int tiles = L::tiles, groups = C::Groups, ahead = L::ahead, v = C::V,
                       packs = L::packs;
  static constexpr int gainPack = minInt(8, elementsPer16Bytes<typename C::P>());
  static constexpr int perRow = L::columns / v;
  static constexpr int items = ceilDiv(L::ownRows * perRow, L::threads);

  const LinearRowsParams<C, Epilogue> p;
  int warp, lane, row, member, col0, k0;
  float *received;    // of shared memory: what other blocks of the cluster send
  float2 *rowMoments; // in the same place: of a norm, sum and squares of each warp's part of a row

  // Loads in flight.
  using Raw = Pack<W, L::unit / L::each>;
  Raw raw[ahead][groups][2];
  float scales[ahead][groups][2];    // WGroup
  unsigned biases[ahead][groups][2]; // WZeros
  Pack<typename C::P, gainPack> gains[ahead][packs][8 / gainPack];
  uint4 a[ahead][groups][2], b[ahead][packs][tiles];
  typename Epilogue::template Operands<v> operands[items];
  Pack<float, v> ofColumns[items][2] = {}; // c and s

  float acc[groups][tiles][4] = {};
  float ofRows[tiles][4] = {}; // sums of squares and sums of rows

  __device__ __forceinline__ explicit LinearRowsTile(const LinearRowsParams<C, Epilogue> &p)
      : p(p) {}

  __device__ __forceinline__ void run() {
    begin();
    fetchWeights(0);
    fetchColumns();
    waitForPredecessor();
    releaseSuccessor();
#pragma unroll 1
    for (int first = 0; first < L::chunks; first += ahead)
      multiply(first);
    putAccumulators();
    if constexpr (C::Splits > 1)
      exchange();
    finish();
  }

#if __CUDA_ARCH__ >= 900
  static __device__ __forceinline__ Barrier &arrived() {
    __shared__ Barrier barrier;
    return barrier;
  }
#endif
  __device__ __forceinline__ void begin() {
    warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    row = lane / 4, member = lane % 4;
    col0 = p.tileN * L::columns;
    k0 = (p.split * C::Warps + warp) * L::chunks * L::chunk + member * L::unit;
    received = p.shared + L::sums;
    rowMoments = reinterpret_cast<float2 *>(p.shared + L::sums);
#if __CUDA_ARCH__ >= 900
    if constexpr (C::Splits > 1) {
      if (threadIdx.x == 0) {
        arrived().init(1);
        fenceBarrierInit();
        arrived().expect((C::Splits - 1) * L::ownRows * L::columns * 4);
      }
      // Relaxed: the fence above is enough, and a releasing arrival would keep the weights waiting.
      asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    }
#endif
  }

  // Loads before the wait for the predecessor
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ bool inside(int chunk) const {
    return C::K % (L::chunk * L::chunks * C::Warps * C::Splits) == 0 ||
           (chunk < L::chunks && k0 + chunk * L::chunk < C::K);
  }
  __device__ __forceinline__ int kOf(int chunk) const {
    return inside(chunk) ? k0 + chunk * L::chunk : 0;
  }
  /// The group of a quad's chunk.
  __device__ __forceinline__ int groupOf(int chunk) const {
    return min(k0 - member * L::unit + chunk * L::chunk, C::K - 1) / maxInt(C::WGroup, 1);
  }
  /// Columns and rows outside are those of the last one: they are not stored.
  __device__ __forceinline__ void fetchWeights(int first) {
    constexpr int wGroup = maxInt(C::WGroup, 1);
#pragma unroll
    for (int u = 0; u < ahead; u++)
      if (first + u < L::chunks) {
#pragma unroll
        for (int g = 0; g < groups; g++)
#pragma unroll
          for (int h = 0; h < 2; h++) {
            const i64 column = min(col0 + g * 16 + h * 8 + row, p.n - 1);
            const int k = kOf(first + u);
            raw[u][g][h] =
                loadPackStreaming<L::unit / L::each>(p.w + (column * C::K + k) / L::each);
            // Of four bits the quad's lanes share a scale, also where some are behind the end of K.
            const i64 group = C::WGroup == 0 ? column
                              : L::nibbles   ? column * (C::K / wGroup) + groupOf(first + u)
                                             : column * (C::K / wGroup) + k / wGroup;
            if constexpr (C::WGroup > 0)
              scales[u][g][h] = p.wScale[group];
            else
              scales[u][g][h] = 1.0f;
            if constexpr (L::nibbles)
              biases[u][g][h] = Operand<W>::template biasOf<X>(C::WZeros ? (int)p.wZero[group] : 0);
          }
        if (L::norm && p.gain != nullptr)
#pragma unroll
          for (int s = 0; s < packs; s++)
#pragma unroll
            for (int i = 0; i < 8 / gainPack; i++)
              gains[u][s][i] =
                  loadPackStreaming<gainPack>(p.gain + kOf(first + u) + s * 8 + i * gainPack);
      }
  }

  __device__ __forceinline__ int itemOf(int i) const { return (int)threadIdx.x + i * L::threads; }
  __device__ __forceinline__ int rowOf(int i) const {
    return p.split * L::ownRows + itemOf(i) / perRow;
  }
  __device__ __forceinline__ int columnOf(int i) const { return itemOf(i) % perRow * v; }
  __device__ __forceinline__ void fetchColumns() {
    const int first = col0, n = p.n;
    if (threadIdx.x < L::columns && first + (int)threadIdx.x < n)
      p.epilogue.prefetchColumn(first + threadIdx.x);
    if constexpr (L::norm)
#pragma unroll
      for (int i = 0; i < items; i++) {
        const int column = min(col0 + columnOf(i), p.n - v);
        ofColumns[i][0] = loadPackStreaming<v>(p.rowSums + column);
        if (p.shiftSums != nullptr)
          ofColumns[i][1] = loadPackStreaming<v>(p.shiftSums + column);
      }
  }

  // Products
  // -----------------------------------------------------------------------------------------------

  /// Chunks from `first` on. All loads are on their way before anything is used: the compiler would
  /// keep some back.
  __device__ __forceinline__ void multiply(int first) {
    if (first > 0)
      fetchWeights(first);
    fetchRows(first);
    if (first == 0)
#pragma unroll
      for (int i = 0; i < items; i++)
        operands[i] =
            p.epilogue.template load<v>(min(rowOf(i), p.m - 1), min(col0 + columnOf(i), p.n - v));
    __syncthreads();
    if constexpr (!L::nibbles)
      prepareWeights(first);
#pragma unroll
    for (int u = 0; u < ahead; u++) {
      if (first + u >= L::chunks)
        break;
      if constexpr (L::nibbles)
        multiplyNibbles(first, u);
      else
#pragma unroll
        for (int t = 0; t < tiles; t++) {
          prepareRow(first, u, 0, t);
#pragma unroll
          for (int g = 0; g < groups; g++)
            rowsProduct<X>(acc[g][t], a[u][g], b[u][0][t]);
        }
    }
  }
  /// One chunk; where weights have groups it is of one.
  __device__ __forceinline__ void multiplyNibbles(int first, int u) {
    if constexpr (L::nibbles) {
      float part[groups][tiles][4] = {};
#pragma unroll
      for (int s = 0; s < packs; s++) {
#pragma unroll
        for (int t = 0; t < tiles; t++)
          prepareRow(first, u, s, t);
#pragma unroll
        for (int g = 0; g < groups; g++) {
          const uint4 w[2] = {nibbles(u, g, 0, s), nibbles(u, g, 1, s)};
#pragma unroll
          for (int t = 0; t < tiles; t++)
            rowsProduct<X>(C::WGroup > 0 ? part[g][t] : acc[g][t], w, b[u][s][t]);
        }
      }
      if constexpr (C::WGroup > 0)
#pragma unroll
        for (int g = 0; g < groups; g++)
#pragma unroll
          for (int t = 0; t < tiles; t++)
#pragma unroll
            for (int e = 0; e < 4; e++)
              acc[g][t][e] = fmaf(part[g][t][e], scales[u][g][e / 2], acc[g][t][e]);
    }
  }
  /// Eight weights of a lane.
  __device__ __forceinline__ uint4 nibbles(int u, int g, int h, int pack) const {
    return Operand<W>::template pairs<X>(
        reinterpret_cast<const unsigned *>(&raw[u][g][h].raw)[pack], biases[u][g][h]);
  }
  __device__ __forceinline__ void fetchRows(int first) {
#pragma unroll
    for (int u = 0; u < ahead; u++)
      if (first + u < L::chunks)
#pragma unroll
        for (int s = 0; s < packs; s++)
#pragma unroll
          for (int t = 0; t < tiles; t++)
            b[u][s][t] =
                loadPack<8>(p.x + (i64)min(t * 8 + row, p.m - 1) * C::K + kOf(first + u) + s * 8)
                    .raw;
  }
  __device__ __forceinline__ void prepareWeights(int first) {
#pragma unroll
    for (int u = 0; u < ahead; u++) {
      if (first + u >= L::chunks)
        break;
#pragma unroll
      for (int g = 0; g < groups; g++)
#pragma unroll
        for (int h = 0; h < 2; h++)
          a[u][g][h] = inside(first + u)
                           ? rowsOperand<(C::WGroup > 0)>(raw[u][g][h], scales[u][g][h])
                           : uint4{};
    }
  }
  /// Takes a row's part into the moments of the norm and multiplies it by the gain.
  __device__ __forceinline__ void prepareRow(int first, int u, int pack, int t) {
    constexpr unsigned one = Mma<X>::ones;
    uint4 &x = b[u][pack][t];
    if (!inside(first + u))
      x = uint4{};
    if constexpr (L::norm)
      rowsProduct<X>(ofRows[t], {x, uint4{one, one, one, one}}, x);
    if (L::norm && p.gain != nullptr)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        unsigned &word = (&x.x)[i];
        auto at = [&](int j) { return gains[u][pack][j / gainPack].get(j % gainPack); };
        word = Mma<X>::scaled(word, at(2 * i), at(2 * i + 1));
      }
  }

  // The end
  // -----------------------------------------------------------------------------------------------

  /// To shared memory. acc[g][t]: columns g * 16 + lane / 4 and + 8, rows t * 8 + lane % 4 * 2 and
  /// the next.
  __device__ __forceinline__ void putAccumulators() {
    float *const to = p.shared + (warp * groups * C::Rows + member * 2) * L::stride + row;
#pragma unroll
    for (int g = 0; g < groups; g++)
#pragma unroll
      for (int t = 0; t < tiles; t++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          to[(g * C::Rows + t * 8 + e % 2) * L::stride + e / 2 * 8] = acc[g][t][e];
    if constexpr (L::norm) {
#pragma unroll
      for (int t = 0; t < tiles; t++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float2 &to = rowMoments[warp * C::Rows + t * 8 + member * 2 + e];
          if (row == 0)
            to.x = ofRows[t][2 + e];
          if (row == member * 2 + e)
            to.y = ofRows[t][e];
        }
    }
    __syncthreads();
  }
  /// The warps' sum of v columns of a row.
  __device__ __forceinline__ void blockSum(int r, int c, float (&sum)[v]) const {
#pragma unroll
    for (int j = 0; j < v; j++)
      sum[j] = 0.0f;
#pragma unroll
    for (int w = 0; w < C::Warps; w++) {
      float part[v];
      loadFloats<v>(p.shared + ((w * groups + c / 16) * C::Rows + r) * L::stride + c % 16, part);
#pragma unroll
      for (int j = 0; j < v; j++)
        sum[j] += part[j];
    }
  }
  /// Split-K over a cluster: each block gets its rows from the others.
  __device__ __forceinline__ void exchange() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); // all have begun
    for (int i = threadIdx.x; i < C::Rows * perRow; i += L::threads) {
      const int r = i / perRow, c = i % perRow * v, owner = r / L::ownRows;
      float sum[v];
      blockSum(r, c, sum);
      float *to = received + (p.split * L::ownRows + r % L::ownRows) * L::columns + c;
      if (owner == p.split)
        storeFloats<v>(to, sum);
      else
        sendToCluster(to, sum, owner, arrived());
    }
    __syncthreads();
    arrived().wait(0);
#endif
  }
  __device__ __forceinline__ void clusterSum(int r, int c, float (&sum)[v]) const {
#pragma unroll
    for (int s = 0; s < C::Splits; s++) {
      float part[v];
      loadFloats<v>(received + (s * L::ownRows + r % L::ownRows) * L::columns + c, part);
#pragma unroll
      for (int j = 0; j < v; j++)
        sum[j] += part[j];
    }
  }
  __device__ __forceinline__ void normalise(int i, int r, float (&sum)[v]) const {
    float2 row = {};
#pragma unroll
    for (int w = 0; w < C::Warps; w++) {
      const float2 part = rowMoments[w * C::Rows + r];
      row.x += part.x;
      row.y += part.y;
    }
    const float mean = C::Norm == NormKind::Layer ? row.x * (1.0f / C::K) : 0.0f;
    const float variance = fmaxf(row.y * (1.0f / C::K) - mean * mean, 0.0f);
    const float rstd = rsqrtf(variance + p.epsilon);
#pragma unroll
    for (int j = 0; j < v; j++)
      sum[j] = fmaf(rstd, sum[j] - mean * ofColumns[i][0].get(j), ofColumns[i][1].get(j));
  }
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int i = 0; i < items; i++) {
      if (itemOf(i) >= L::ownRows * perRow)
        break;
      const int r = rowOf(i), c = columnOf(i);
      float sum[v] = {};
      if constexpr (C::Splits == 1)
        blockSum(r, c, sum);
      else
        clusterSum(r, c, sum);
      if constexpr (L::norm)
        normalise(i, r, sum);
      if (r >= p.m || col0 + c >= p.n)
        continue;
      p.epilogue.apply(sum, operands[i]);
      epilogue::storeResults<Epilogue>(p.y, (i64)r, p.n, col0 + c, sum);
    }
  }
};

template <typename C, typename Epilogue>
__device__ __forceinline__ void
linearRows(const typename C::X *x, const typename C::W *__restrict__ w, typename C::Y *y,
           Extent extent, WeightScales scales, NormSums<typename C::P> norm, int split, int tileN,
           float *shared, const Epilogue &epilogue) {
  LinearRowsTile<C, Epilogue> tile({x, w, y, extent.m, extent.n, scales.scale, scales.zero,
                                    norm.gain, norm.rowSums, norm.shiftSums, norm.epsilon, split,
                                    tileN, shared, epilogue});
  tile.run();
}

} // namespace tile
} // namespace gpt2c

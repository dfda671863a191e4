// Two products with what is between them, for up to 32 rows: Y = R + b2 + W2 a(W1 norm(X) + b1)
//
// A thread block cluster computes 256 hidden columns: each of its eight blocks 32 of them out of
// whole rows of X, which all blocks of the cluster get in fp16, and then its share of the columns
// of Y, summed over the cluster's hidden columns. What is between the products never leaves shared
// memory, and one launch takes the place of two.
//
// Partial sums of all clusters are added in integers: integers commute, so the result does not
// depend on who comes first. A word has two columns' sums in fixed point and in its low bits how
// many have added to it; what atomicAdd returns tells the last one that it is the last, and it
// finishes these elements. So nobody waits for another cluster, nor need all be resident, and there
// is no fence and no counter. The unit of a column is so large that no X can make its sum overflow,
// which the compiler knows by the weights.
//
// The norm has no gain and no shift (fold-norms) and is folded into the epilogue of the first
// product as in linear_rows.cuh. Its mean and rstd are a ninth warp's, four rows in each block, and
// go to all blocks of the cluster. Weights are on their way before the kernel waits for its
// predecessor: those of the first product in registers, those of the second in shared memory.
//
// From the first product on nothing comes from device memory any more, until the next layer's
// attention begins, which does nothing but wait for it. So the ninth warps bring some of the keys
// and values that it will read into L2: those in the middle of each head, as what it reads first is
// on its way early enough, and what it reads last it reads while others have ended.
//
// Config: P (type of the biases), D (a multiple of 256, at most 1024), Hidden (a multiple of 256,
// at most 4096); Heads and HeadDim of the attention, 0 where there is none; template <int V> static
// void activate(float (&v)[V]). From sm_90 on. Kernel: x
// f16[m,D], w1 f16[Hidden,D], sums1 f32[Hidden], the sums of its rows, b1 P[Hidden], epsilon, w2
// f16[D,Hidden], units f32[D], powers of two, b2 P[D], residual f16[m,D], y f16[m,D], not where x
// or residual are, words u64[16 D] (zero before the first launch and after each), m (at most 32);
// then the KV state f16 of the attention behind (null: none), past i32[batch], the pages of the
// sequences i32[batch,tableStride] or null, its layer, batch, batchMax, context and tableStride.
// Grid: (8, Hidden / 256), clusters of eight along x; block: MlpCluster<C>::threads; dynamic
// shared: MlpCluster<C>::sharedBytes. Bytes: 4 D Hidden + 6 m D; flops: 4 m D Hidden.
#pragma once

#include "templates/attention/kv_append/kv_append.cuh"
#include "templates/linear/rows/linear_rows.cuh"

namespace gpt2c {
#if __CUDA_ARCH__ >= 900

template <typename C> struct MlpCluster {
  static constexpr int ranks = 8, warps = 8, threads = 32 * (warps + 1), rows = 32;
  static constexpr int ofBlock = 32, ofCluster = ranks * ofBlock; // hidden columns
  static constexpr int clusters = C::Hidden / ofCluster;
  static constexpr int columns = C::D / ranks;     // of Y, of a block
  static constexpr int chunks = C::D / 32 / warps; // of 32 columns of X, of a warp
  static constexpr int tiles = columns / 32;       // of eight columns of Y, of a pair of warps
  /// Of rows in shared memory, so that the 64 bytes that four lanes read of one and of the next are
  /// in different banks.
  static constexpr int pitch = ofCluster + 32;
  struct Shared {
    alignas(16) __half w2[columns][pitch];
    alignas(16) __half hidden[rows][pitch];
    alignas(16) float sum[warps][rows][ofBlock + 4]; ///< of a warp's part of K
    float other[warps][tiles * 4][32];               ///< for the other warp of a pair
    float2 moments[rows];                            ///< mean, rstd
    Barrier arrived, known;
  };
  static constexpr int sharedBytes = sizeof(Shared);
  static_assert(C::D % 256 == 0 && C::D <= 1024 && C::Hidden % ofCluster == 0 && clusters <= 16);
};

/// The KV state that attention behind this kernel reads; with pages (tables) the layers that one
/// has are in the place of batchMax, and their tokens in that of the context of a sequence.
struct StateAhead {
  const __half *kv;
  const int *past, *tables; // tables: null without pages
  int layer, batch, batchMax, context, tableStride;

  /// Brings a quarter of each head's keys and values into L2, from behind three eighths on, but no
  /// more than stay there beside weights; by one warp of each of `blocks`.
  template <int Heads, int HeadDim>
  __device__ __forceinline__ void fetch(int block, int blocks) const {
    constexpr int mostBytes = 12 << 20, row = HeadDim * 2;
    if (kv == nullptr)
      return;
    const int pieces = 2 * Heads * batch, most = mostBytes / row / pieces;
    for (int i = block + threadIdx.x % 32 * blocks; i < pieces; i += 32 * blocks) {
      const int b = i / (2 * Heads), part = i / Heads % 2, h = i % Heads;
      const int stored = tables ? past[b] : min(past[b], context);
      const int end = stored * 3 / 8 + min(stored / 4, most);
      for (int from = stored * 3 / 8, to; from < end; from = to) {
        to = min(end, (from / context + 1) * context);
        const i64 head = tables ? kvOffset(tables[b * tableStride + from / context], 0,
                                           layer * 2 + part, h, batchMax, Heads, context, HeadDim)
                                : kvOffset(layer, part, b, h, batchMax, Heads, context, HeadDim);
        prefetchBytes(kv + head + (i64)(from % context) * HeadDim, (i64)(to - from) * row);
      }
    }
  }
};

/// Two sums in fixed point, of 30 bits each, and the number of those who have added to them.
struct CountedSums {
  static constexpr int bits = 30, countBits = 4;
  static __device__ __forceinline__ u64 contribution(float a, float b) {
    return ((u64)(i64)__float2int_rn(b) << (bits + countBits)) +
           ((u64)(i64)__float2int_rn(a) << countBits) + 1;
  }
  static __device__ __forceinline__ int count(u64 word) {
    return (int)(word & ((1u << countBits) - 1));
  }
  /// 1 / unit of a power of two.
  static __device__ __forceinline__ float inverse(float unit) {
    return __uint_as_float((254u << 23) - __float_as_uint(unit));
  }
  /// What `count` contributions have made of a word.
  static __device__ __forceinline__ int2 values(u64 word, int count) {
    const i64 both = (i64)(word - count) >> countBits;
    const int a = (int)(both << (64 - bits) >> (64 - bits));
    return {a, (int)((both - a) >> bits)};
  }
};

/// Mean and rstd of `own` rows from `first` on, by a warp; lane 8 r + i has those of row
/// r.
template <int D, int own>
__device__ __forceinline__ float2 rowMoments(const __half *x, int first, int m, float epsilon) {
  constexpr int vectors = D / 256;
  const int lane = threadIdx.x % 32;
  uint4 v[own][vectors];
#pragma unroll
  for (int r = 0; r < own; r++)
#pragma unroll
    for (int i = 0; i < vectors; i++)
      v[r][i] = loadPack<8>(x + (i64)min(first + r, m - 1) * D + (i * 32 + lane) * 8).raw;
  float mean[own] = {}, squares[own] = {};
  auto forPairs = [&](auto &&body) {
#pragma unroll
    for (int r = 0; r < own; r++)
#pragma unroll
      for (int i = 0; i < vectors; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
          body(r, __half22float2(reinterpret_cast<const __half2 *>(&v[r][i])[j]));
  };
  auto reduce = [](float(&sum)[own]) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
#pragma unroll
      for (int r = 0; r < own; r++)
        sum[r] += __shfl_xor_sync(fullWarp, sum[r], offset);
  };
  forPairs([&](int r, float2 p) { mean[r] += p.x + p.y; });
  reduce(mean);
#pragma unroll
  for (int r = 0; r < own; r++)
    mean[r] *= 1.0f / D;
  forPairs([&](int r, float2 p) {
    squares[r] = fmaf(p.x - mean[r], p.x - mean[r], squares[r]);
    squares[r] = fmaf(p.y - mean[r], p.y - mean[r], squares[r]);
  });
  reduce(squares);
  float2 mine{mean[0], squares[0]};
#pragma unroll
  for (int r = 1; r < own; r++)
    if (lane / 8 == r)
      mine = {mean[r], squares[r]};
  return {mine.x, rsqrtf(mine.y * (1.0f / D) + epsilon)};
}

namespace tile {

/// The parameters of the kernel; block `rank` of a cluster.
template <typename C> struct MlpClusterParams {
  const __half *x, *w1;
  const float *sums1;
  const typename C::P *b1;
  float epsilon;
  const __half *w2;
  const float *units;
  const typename C::P *b2;
  const __half *residual;
  __half *y;
  u64 *words;
  int m;
  const StateAhead &ahead;
  int rank, cluster;
  void *dynamicShared;
};

/// A block's roles: a warp that computes the norm's moments, and the warps of the two products, in
/// phases; `multiply` has their order.
template <typename C> struct MlpClusterBlock {
  using L = MlpCluster<C>;
  static constexpr int chunks = L::chunks, tiles = L::tiles, ranks = L::ranks;
  static constexpr int halfChunks = L::ofCluster / 64; // of a half of the cluster's hidden columns

  const MlpClusterParams<C> p;
  typename L::Shared &shared;
  int warp, lane, g, t;

  // A warp's part of K, of which a lane takes eight neighbours in each chunk.
  int hidden0, column0, k0;
  Pack<__half, 8> raw[chunks][2][2];
  uint4 rows[chunks][4];
  // A thread finishes four hidden columns of a row, and pairs of columns of Y.
  int row, column;
  float sums[4], biases[4];
  // A pair of warps has `tiles` times eight columns, each a half of the cluster's hidden columns;
  // then each finishes 16 rows.
  int part, group, outColumn;
  float outBias[tiles][2], unit[tiles][2];
  Pack<__half, 2> added[tiles][2];

  __device__ __forceinline__ explicit MlpClusterBlock(const MlpClusterParams<C> &p)
      : p(p), shared(*static_cast<typename L::Shared *>(p.dynamicShared)) {}

  __device__ __forceinline__ void run() {
    warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    if (threadIdx.x == 0) {
      shared.arrived.init(1);
      shared.known.init(1);
      fenceBarrierInit();
      shared.arrived.expect(L::rows * L::ofCluster * 2);
      shared.known.expect(L::rows * 8);
    }
    // Relaxed: a releasing arrival would wait for the weights, and the fence above is enough.
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    if (warp == L::warps)
      sendMoments();
    else
      multiply();
  }
  static __device__ __forceinline__ void allHaveBegun() {
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
  }

  __device__ __forceinline__ void sendMoments() {
    waitForPredecessor();
    releaseSuccessor();
    constexpr int own = L::rows / ranks;
    const float2 moments = rowMoments<C::D, own>(p.x, p.rank * own, p.m, p.epsilon);
    allHaveBegun();
    send(remote(sharedAddress(&shared.moments[p.rank * own + lane / 8]), lane % 8), moments.x,
         moments.y, remote(shared.known.address(), lane % 8));
    __syncthreads();
    if constexpr (C::Heads > 0)
      p.ahead.template fetch<C::Heads, C::HeadDim>(p.cluster * ranks + p.rank, ranks * L::clusters);
    __syncthreads();
  }

  __device__ __forceinline__ void multiply() {
    loadWeights();
    waitForPredecessor();
    releaseSuccessor();
    loadRows();
    multiplyFirst();
    allHaveBegun();
    copyAsyncWait<0>();
    __syncthreads();
    sendHidden();
    float out[2][tiles][4] = {};
    multiplySecond(out);
    finish(out);
  }

  // Loads
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ void loadWeights() {
    hidden0 = p.cluster * L::ofCluster + p.rank * L::ofBlock, column0 = p.rank * L::columns;
    k0 = warp * chunks * 32 + t * 8;
#pragma unroll
    for (int u = 0; u < chunks; u++)
#pragma unroll
      for (int i = 0; i < 2; i++)
#pragma unroll
        for (int h = 0; h < 2; h++)
          raw[u][i][h] =
              loadPackStreaming<8>(p.w1 + (i64)(hidden0 + i * 16 + h * 8 + g) * C::D + k0 + u * 32);
    constexpr int vectors = L::ofCluster / 8;
    for (int i = threadIdx.x; i < L::columns * vectors; i += 32 * L::warps)
      copyAsync16(&shared.w2[i / vectors][i % vectors * 8],
                  p.w2 + (i64)(column0 + i / vectors) * C::Hidden + p.cluster * L::ofCluster +
                      i % vectors * 8,
                  true);
    copyAsyncCommit();
    row = threadIdx.x / 8, column = threadIdx.x % 8 * 4;
    loadFloats<4>(p.sums1 + hidden0 + column, sums);
    loadFloats<4>(p.b1 + hidden0 + column, biases);
    part = warp % 2, group = warp / 2, outColumn = column0 + group * tiles * 8 + t * 2;
#pragma unroll
    for (int i = 0; i < tiles; i++) {
      loadFloats<2>(p.b2 + outColumn + i * 8, outBias[i]);
      loadFloats<2>(p.units + outColumn + i * 8, unit[i]);
    }
  }
  __device__ __forceinline__ void loadRows() {
#pragma unroll
    for (int u = 0; u < chunks; u++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        rows[u][i] = loadPack<8>(p.x + (i64)min(i * 8 + g, p.m - 1) * C::D + k0 + u * 32).raw;
#pragma unroll
    for (int i = 0; i < tiles; i++)
#pragma unroll
      for (int h = 0; h < 2; h++)
        added[i][h] = loadPack<2>(p.residual + outPlace(i, h));
  }
  __device__ __forceinline__ int outRow(int h) const { return part * 16 + h * 8 + g; }
  __device__ __forceinline__ i64 outPlace(int i, int h) const {
    return (i64)min(outRow(h), p.m - 1) * C::D + outColumn + i * 8;
  }

  // The first product
  // -----------------------------------------------------------------------------------------------

  /// Hidden columns are the 16 rows of the mma's first operand.
  __device__ __forceinline__ void multiplyFirst() {
    float sum[2][4][4] = {};
#pragma unroll
    for (int u = 0; u < chunks; u++)
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const uint4 w[2] = {raw[u][j][0].raw, raw[u][j][1].raw};
#pragma unroll
        for (int i = 0; i < 4; i++)
          rowsProduct(sum[j][i], w, rows[u][i]);
      }
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          shared.sum[warp][i * 8 + t * 2 + e % 2][j * 16 + g + e / 2 * 8] = sum[j][i][e];
  }
  /// Its epilogue; the hidden columns go to all blocks of the cluster.
  __device__ __forceinline__ void sendHidden() {
    float v[4] = {};
#pragma unroll
    for (int w = 0; w < L::warps; w++) {
      float of[4];
      loadFloats<4>(&shared.sum[w][row][column], of);
#pragma unroll
      for (int j = 0; j < 4; j++)
        v[j] += of[j];
    }
    shared.known.wait(0);
    const float2 moments = shared.moments[row];
#pragma unroll
    for (int j = 0; j < 4; j++)
      v[j] = fmaf(moments.y, v[j] - moments.x * sums[j], biases[j]);
    C::activate(v);
    const uint2 words{packHalves(v[0], v[1]), packHalves(v[2], v[3])};
#pragma unroll
    for (int i = 0; i < ranks; i++)
      send(remote(sharedAddress(&shared.hidden[row][p.rank * L::ofBlock + column]), i), words,
           remote(shared.arrived.address(), i));
  }

  // The second product
  // -----------------------------------------------------------------------------------------------

  /// Rows are the 16 rows of the first operand. Its weights go to registers while the hidden
  /// columns are on their way.
  __device__ __forceinline__ void multiplySecond(float (&out)[2][tiles][4]) {
    Pack<__half, 8> w[tiles][halfChunks];
#pragma unroll
    for (int i = 0; i < tiles; i++)
#pragma unroll
      for (int u = 0; u < halfChunks; u++)
        w[i][u] = loadPack<8>(
            &shared.w2[(group * tiles + i) * 8 + g][(part * halfChunks + u) * 32 + t * 8]);
    shared.arrived.wait(0);
#pragma unroll
    for (int u = 0; u < halfChunks; u++) {
      uint4 h[4];
#pragma unroll
      for (int i = 0; i < 4; i++)
        h[i] = *reinterpret_cast<const uint4 *>(
            &shared.hidden[i * 8 + g][(part * halfChunks + u) * 32 + t * 8]);
#pragma unroll
      for (int i = 0; i < tiles; i++) {
        const uint4 columns = w[i][u].raw;
#pragma unroll
        for (int r = 0; r < 2; r++) {
          const unsigned low[4] = {h[2 * r].x, h[2 * r + 1].x, h[2 * r].y, h[2 * r + 1].y};
          const unsigned high[4] = {h[2 * r].z, h[2 * r + 1].z, h[2 * r].w, h[2 * r + 1].w};
          mma16816(out[r][i], low, columns.x, columns.y);
          mma16816(out[r][i], high, columns.z, columns.w);
        }
      }
    }
  }
  /// Adds the halves of a pair of warps, then the clusters; the last one stores.
  __device__ __forceinline__ void finish(const float (&out)[2][tiles][4]) {
#pragma unroll
    for (int i = 0; i < tiles; i++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        shared.other[warp][i * 4 + e][lane] = part ? out[0][i][e] : out[1][i][e];
    __syncthreads();
    u64 mine[tiles][2], before[tiles][2];
    u64 *const to = p.words + (p.rank * L::warps + warp) * tiles * 64 + lane;
#pragma unroll
    for (int i = 0; i < tiles; i++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        auto sum = [&](int e) {
          return (part ? out[1][i][2 * h + e] : out[0][i][2 * h + e]) +
                 shared.other[warp ^ 1][i * 4 + 2 * h + e][lane];
        };
        mine[i][h] = CountedSums::contribution(sum(0) * CountedSums::inverse(unit[i][0]),
                                               sum(1) * CountedSums::inverse(unit[i][1]));
      }
#pragma unroll
    for (int i = 0; i < tiles; i++)
#pragma unroll
      for (int h = 0; h < 2; h++)
        before[i][h] = atomicAdd((unsigned long long *)to + (i * 2 + h) * 32, mine[i][h]);
#pragma unroll
    for (int i = 0; i < tiles; i++)
#pragma unroll
      for (int h = 0; h < 2; h++)
        if (CountedSums::count(before[i][h]) == L::clusters - 1) {
          store(i, h, CountedSums::values(before[i][h] + mine[i][h], L::clusters));
          __stcg(to + (i * 2 + h) * 32, 0ull);
        }
  }
  __device__ __forceinline__ void store(int i, int h, int2 all) const {
    const float v[2] = {fmaf((float)all.x, unit[i][0], outBias[i][0]) + toFloat(added[i][h].get(0)),
                        fmaf((float)all.y, unit[i][1], outBias[i][1]) +
                            toFloat(added[i][h].get(1))};
    if (outRow(h) < p.m)
      storeFloats<2>(p.y + outPlace(i, h), v);
  }
};

template <typename C>
__device__ __forceinline__ void
mlpCluster(const __half *x, const __half *__restrict__ w1, const float *__restrict__ sums1,
           const typename C::P *__restrict__ b1, float epsilon, const __half *__restrict__ w2,
           const float *__restrict__ units, const typename C::P *__restrict__ b2,
           const __half *residual, __half *y, u64 *words, int m, const StateAhead &ahead, int rank,
           int cluster, void *dynamicShared) {
  MlpClusterBlock<C> block({x, w1, sums1, b1, epsilon, w2, units, b2, residual, y, words, m, ahead,
                            rank, cluster, dynamicShared});
  block.run();
}

} // namespace tile
#endif
} // namespace gpt2c

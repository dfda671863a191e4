// What the blocks of persistent_clusters.cuh do in every stage: the ring, x, products and what is
// sent to other blocks.
#pragma once

#include "templates/persistent/persistent_cluster_block.cuh"

namespace gpt2c::clusters {
#if __CUDA_ARCH__ >= 900

template <typename C> struct Step {
  using L = Layout<C>;
  using T = typename C::T;
  using W = typename C::W;
  static constexpr int warps = L::warps;
  static constexpr bool halves = sizeof(T) == 2;
  static constexpr int weighing = halves ? headDim / 16 + 1 : headDim / 8; ///< warps
  /// Number of this one: the first warps have the keys of short contexts, the last two the new one.
  __device__ __forceinline__ int weigher() const { return warp - (warps - 2 - weighing); }
  __device__ __forceinline__ bool weighs() const { return weigher() >= 0 && weigher() < weighing; }
  static constexpr bool roomy = clusters::roomy<C>;

  Shared<C> &shared;
  int thread = threadIdx.x;
  int warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
  int cluster = blockIdx.x / ranks, rank = blockIdx.x % ranks;
  int token = 0;     ///< the step's input
  int slot = 0;      ///< of the ring, next
  unsigned lap = 0;  ///< parity of the ring's lap
  unsigned turn = 0; ///< layers since the launch
  i64 offset = 0;    ///< from a channel's address to this step's area
  float residual[L::passes];

  /// Hides from the compiler that what follows from the thread's place stays the same: it would
  /// keep more addresses than there are registers, and what is spilled does not fit into L1.
  __device__ __forceinline__ void refresh() {
    unsigned block, number; // unsigned: divisions are shifts
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    cluster = block / ranks;
    rank = block % ranks;
    thread = number;
    warp = number / 32;
    lane = number % 32;
    g = number % 32 / 4;
    t = number % 4;
  }
  /// What takes an address in this block's shared memory to that in block `rank`.
  __device__ __forceinline__ unsigned distance(int rank) const {
    const unsigned here = sharedAddress(&shared);
    return remote(here, rank) - here;
  }
  /// Barriers of the computing warps and the helper, or of some of them.
  template <int Id, int Warps> __device__ __forceinline__ static void sync() {
    __syncwarp();
    asm volatile("barrier.sync.aligned %0, %1;" ::"n"(Id), "n"(Warps * 32) : "memory");
  }

  /// Waits for what the blocks of the cluster send. Acquiring at the cluster's scope would
  /// invalidate L1, spilled registers included; what arrives comes by way of the barrier itself.
  __device__ __forceinline__ static void waitArrival(u64 *barrier, unsigned parity) {
    persistent::barrierWait(barrier, parity);
    __syncwarp();
  }

  // The ring
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ int slotAt(int i) const {
    return slot + i >= C::Slots ? slot + i - C::Slots : slot + i;
  }
  __device__ __forceinline__ void waitSlot(int i) const {
    persistent::barrierWait(&shared.full[slotAt(i)], slot + i >= C::Slots ? lap ^ 1 : lap);
    __syncwarp();
  }
  __device__ __forceinline__ void advance(int n) {
    const unsigned to = slot + n;
    slot = to % C::Slots;
    lap ^= to / C::Slots & 1;
  }
  /// Gives n slots back, behind a barrier of those who have read them: the helper does so for all.
  __device__ __forceinline__ void release(int n) {
    if (lane < n)
      persistent::barrierArrive(&shared.empty[slotAt(lane)]);
    __syncwarp();
    advance(n);
  }

  // Products: 16 rows of weights of a warp, of which lane (g, t) has 2 g and 2 g + 1
  // -----------------------------------------------------------------------------------------------

  /// Lane t has vectors t, t + 4, .. of a row of K elements: of fp32 those of both rows, of fp16
  /// the operands that they are.
  template <int K, int Pitch = K> struct Tile {
    static constexpr int vector = elementsPer16Bytes<T>(), pieces = K / (4 * vector);
    static_assert(K % (4 * vector) == 0);
    uint4 w[pieces][2];

    __device__ __forceinline__ void set(int i, const uint4 &a, const uint4 &b) {
      if constexpr (halves) {
        w[i][0] = {a.x, b.x, a.y, b.y};
        w[i][1] = {a.z, b.z, a.w, b.w};
      } else {
        w[i][0] = a;
        w[i][1] = b;
      }
    }
    static __device__ __forceinline__ uint4 convert(uint2 words) {
      const quantised::HalfPairs a = quantised::halves(words.x), b = quantised::halves(words.y);
      return {a.low, a.high, b.low, b.high};
    }
    /// Where piece i of row j is, in bytes.
    static __device__ __forceinline__ int at(int i, int j, int t) {
      return (j * Pitch + (i * 4 + t) * vector) * (int)sizeof(W);
    }
    /// rows: the first of the lane's two rows in shared memory, Pitch elements from each other.
    /// swizzle: what offsets from it are changed by.
    __device__ __forceinline__ void load(const char *rows, int t, int swizzle = 0) {
#pragma unroll
      for (int i = 0; i < pieces; i++) {
        uint4 two[2];
#pragma unroll
        for (int j = 0; j < 2; j++) {
          const char *from = rows + (at(i, j, t) ^ swizzle);
          if constexpr (sizeof(W) == sizeof(T)) {
            two[j] = *reinterpret_cast<const uint4 *>(from);
          } else if constexpr (halves) {
            two[j] = convert(*reinterpret_cast<const uint2 *>(from));
          } else {
            const unsigned word = *reinterpret_cast<const unsigned *>(from);
            two[j] = {__float_as_uint((float)(signed char)word),
                      __float_as_uint((float)(signed char)(word >> 8)),
                      __float_as_uint((float)(signed char)(word >> 16)),
                      __float_as_uint((float)((int)word >> 24))};
          }
        }
        set(i, two[0], two[1]);
      }
    }
    static constexpr int chains = pieces % 2 ? 3 : 4; ///< that do not wait for each other
    template <typename X>
    __device__ __forceinline__ void mma(float (&sum)[chains][4], X &&x) const {
#pragma unroll
      for (int i = 0; i < pieces; i++) {
        const uint4 b = x(i);
        const unsigned low[4] = {w[i][0].x, w[i][0].y, w[i][0].z, w[i][0].w};
        const unsigned high[4] = {w[i][1].x, w[i][1].y, w[i][1].z, w[i][1].w};
        mma16816(sum[2 * i % chains], low, b.x, b.y);
        mma16816(sum[(2 * i + 1) % chains], high, b.z, b.w);
      }
    }
    /// The products of the lane's rows with x, in all lanes t.
    template <typename X> __device__ __forceinline__ float2 multiply(X &&x) const {
      if constexpr (halves) {
        float sum[chains][4] = {};
        mma(sum, x);
        float2 total = {sum[0][0], sum[0][2]};
#pragma unroll
        for (int c = 1; c < chains; c++) {
          total.x += sum[c][0];
          total.y += sum[c][2];
        }
        return total;
      } else {
        float sum[2][2] = {};
#pragma unroll
        for (int i = 0; i < pieces; i++) {
          const uint4 b = x(i);
#pragma unroll
          for (int j = 0; j < 2; j++) {
            float &s = sum[j][i % 2];
            s = fmaf(__uint_as_float(w[i][j].x), __uint_as_float(b.x), s);
            s = fmaf(__uint_as_float(w[i][j].y), __uint_as_float(b.y), s);
            s = fmaf(__uint_as_float(w[i][j].z), __uint_as_float(b.z), s);
            s = fmaf(__uint_as_float(w[i][j].w), __uint_as_float(b.w), s);
          }
        }
        return {warpReduce<Sum, 4>(sum[0][0] + sum[0][1]),
                warpReduce<Sum, 4>(sum[1][0] + sum[1][1])};
      }
    }
    /// The product of one row of 2 K elements, whose halves are here instead of two rows, with x.
    __device__ __forceinline__ float multiplyRow(const T *x, int g, int t) const {
      const uint4 *const from = reinterpret_cast<const uint4 *>(x) + t;
      if constexpr (halves) {
        // Columns of the other operand are either half of x in turn: of the results those count
        // whose row and column agree.
        float sum[chains][4] = {}, total = 0.0f;
        const uint4 *const half = from + g % 2 * (K / vector);
        mma(sum, [&](int i) { return half[i * 4]; });
#pragma unroll
        for (int c = 0; c < chains; c++)
          total += sum[c][0] + sum[c][3];
        return total;
      } else {
        float sum[4] = {};
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
          for (int i = 0; i < pieces; i++) {
            const uint4 b = from[j * (K / vector) + i * 4];
            float &s = sum[2 * j + i % 2];
            s = fmaf(__uint_as_float(w[i][j].x), __uint_as_float(b.x), s);
            s = fmaf(__uint_as_float(w[i][j].y), __uint_as_float(b.y), s);
            s = fmaf(__uint_as_float(w[i][j].z), __uint_as_float(b.z), s);
            s = fmaf(__uint_as_float(w[i][j].w), __uint_as_float(b.w), s);
          }
        return warpReduce<Sum, 4>((sum[0] + sum[1]) + (sum[2] + sum[3]));
      }
    }
  };
  /// Row `row` of the matrix of K columns that the slots hold from the one `first` behind the next
  /// on.
  template <int K> __device__ __forceinline__ const char *rowAt(int first, int row) const {
    constexpr int each = L::slotWeights / K;
    return shared.ring[slotAt(first + row / each)] + row % each * K * (int)sizeof(W);
  }
  /// The lane's rows of a tile of it, once they are there.
  template <bool Wait, int K, int Pitch>
  __device__ __forceinline__ void load(Tile<K, Pitch> &to, int first, int tile,
                                       int swizzle = 0) const {
    constexpr int each = L::slotWeights / Pitch;
    if (Wait)
      waitSlot(first + tile * 16 / each);
    if (Wait && each % 16 != 0)
      waitSlot(first + (tile * 16 + 15) / each);
    to.load(rowAt<Pitch>(first, tile * 16 + 2 * g), t, swizzle);
  }

  /// A warp has 8 rows of the second product of an MLP, a lane both halves of one.
  static constexpr int outputColumns = L::hidden / 2;
  using OutputTile = Tile<outputColumns, outputColumns>;
  /// The lane's row; the slots of the second product are `first` behind the next one.
  __device__ __forceinline__ const char *outputRow(int first) const {
    constexpr int each = L::slotWeights / L::hidden;
    static_assert(each % 8 == 0 && L::slice == 8 * warps);
    waitSlot(first + warp * 8 / each);
    return rowAt<L::hidden>(first, warp * 8) + g * L::hidden * (int)sizeof(W);
  }
  /// The lane's int8 weights of it, ahead of the wait for x.
  struct OutputWords {
    static constexpr int pieces = roomy ? OutputTile::pieces : 1;
    uint2 w[pieces][2];

    __device__ __forceinline__ explicit OutputWords(const Step &step) {
      if constexpr (roomy) {
        const char *const row = step.outputRow(L::hiddenSlots);
#pragma unroll
        for (int i = 0; i < pieces; i++)
#pragma unroll
          for (int j = 0; j < 2; j++)
            w[i][j] = *reinterpret_cast<const uint2 *>(
                row + (OutputTile::at(i, j, step.t) ^ step.g * 16));
      }
    }
    __device__ __forceinline__ void convert(OutputTile &to) const {
#pragma unroll
      for (int i = 0; i < pieces; i++)
        to.set(i, to.convert(w[i][0]), to.convert(w[i][1]));
    }
  };

  /// A vector in shared memory as multiply() wants it.
  __device__ __forceinline__ auto vectorIn(const T *x) const {
    return [x, t = t](int i) { return reinterpret_cast<const uint4 *>(x)[i * 4 + t]; };
  }
  /// Pairs of neighbours, of which lane i has number i, as multiply() wants them: K is 64.
  __device__ __forceinline__ auto vectorOf(float2 pair) const {
    return [pair, t = t](int i) {
      uint4 v;
      if constexpr (halves) {
        const unsigned word = packHalves(pair.x, pair.y);
        v.x = __shfl_sync(fullWarp, word, i * 16 + t * 4);
        v.y = __shfl_sync(fullWarp, word, i * 16 + t * 4 + 1);
        v.z = __shfl_sync(fullWarp, word, i * 16 + t * 4 + 2);
        v.w = __shfl_sync(fullWarp, word, i * 16 + t * 4 + 3);
      } else {
        v.x = __float_as_uint(__shfl_sync(fullWarp, pair.x, i * 8 + t * 2));
        v.y = __float_as_uint(__shfl_sync(fullWarp, pair.y, i * 8 + t * 2));
        v.z = __float_as_uint(__shfl_sync(fullWarp, pair.x, i * 8 + t * 2 + 1));
        v.w = __float_as_uint(__shfl_sync(fullWarp, pair.y, i * 8 + t * 2 + 1));
      }
      return v;
    };
  }

  /// The same for the operands as they are in memory.
  __device__ __forceinline__ auto operandOf(float2 pair) const {
    return [word = packHalves(pair.x, pair.y), t = t](int i) {
      uint4 v;
      v.x = __shfl_sync(fullWarp, word, i * 16 + t);
      v.y = __shfl_sync(fullWarp, word, i * 16 + t + 4);
      v.z = __shfl_sync(fullWarp, word, i * 16 + t + 8);
      v.w = __shfl_sync(fullWarp, word, i * 16 + t + 12);
      return v;
    };
  }

  // x
  // -----------------------------------------------------------------------------------------------

  /// The column of x that this lane adds up, with those of the same place in other eights.
  __device__ __forceinline__ int column(int pass) const {
    return rank * L::slice + (pass * warps + warp) * 8 + lane % 8;
  }
  /// The residual of a token.
  __device__ __forceinline__ void embed(const ClusterEmbedRecord<Words> &r, int past) {
    const int position = max(0, min(past, r.positionCount - 1));
#pragma unroll
    for (int i = 0; i < L::passes; i++) {
      float v = toFloat(
          r.tokens.template as<const typename C::Embedding>()[(i64)token * C::D + column(i)]);
      if constexpr (C::Groups > 0)
        v *= r.scales[(i64)token * C::Groups + column(i) / (C::D / C::Groups)];
      if constexpr (C::Position)
        v += toFloat(r.positions.template as<const T>()[(i64)position * C::D + column(i)]);
      residual[i] = v;
    }
  }
  /// Where a cluster's partial sums are in a channel: those of all clusters follow each other for
  /// every 8 columns, which a warp reads.
  static __device__ __forceinline__ int partialAt(int source, int column) {
    return (column / 8 * C::Heads + source) * 8 + column % 8;
  }
  /// Adds what the clusters have published behind a half to the residual. A spare cluster does not
  /// look as often, but for the last half.
  __device__ __forceinline__ void receive(const HalfRecord<Words> &half, bool spare = false) {
    // A quarter of a warp has a quarter of the sources.
    constexpr int each = ceilDiv(C::Heads, 4);
    const int first = lane / 8 * each;
    const unsigned *from = reinterpret_cast<const unsigned *>(half.partials.word) + offset / 4 +
                           partialAt(first, column(0));
    float bias[L::passes];
    unsigned v[L::passes][each] = {};
#pragma unroll
    for (int i = 0; i < L::passes; i++)
      bias[i] = __uint_as_float(persistent::loadWord(half.bias + column(i)));
    Patience patience;
    bool missing;
    do {
      missing = false;
#pragma unroll
      for (int i = 0; i < L::passes; i++)
#pragma unroll
        for (int j = 0; j < each; j++)
          persistent::loadWord(v[i][j], from + i * warps * 8 * C::Heads + j * 8,
                               first + j < C::Heads && v[i][j] == 0);
#pragma unroll
      for (int i = 0; i < L::passes; i++)
#pragma unroll
        for (int j = 0; j < each; j++)
          missing |= first + j < C::Heads && v[i][j] == 0;
      patience.spend();
      if (spare)
        __nanosleep(100);
    } while (__any_sync(fullWarp, missing));
#pragma unroll
    for (int i = 0; i < L::passes; i++) {
      float sum = 0.0f;
#pragma unroll
      for (int j = 0; j < each; j++)
        sum += __uint_as_float(v[i][j]);
      sum += __shfl_xor_sync(fullWarp, sum, 8);
      sum += __shfl_xor_sync(fullWarp, sum, 16);
      residual[i] += sum + bias[i];
    }
  }
  /// Leaves the slice in shared memory.
  template <bool Gained> __device__ __forceinline__ void store(const float (&gain)[L::passes]) {
    if (lane < 8)
#pragma unroll
      for (int i = 0; i < L::passes; i++) {
        const int c = column(i) - rank * L::slice;
        if (Gained || !halves) // else statistics are of x itself
          shared.plain[c] = residual[i];
        shared.x[c] = fromFloat<T>(Gained ? residual[i] * gain[i] : residual[i]);
      }
  }
  template <bool Gained>
  __device__ __forceinline__ void loadGain(const FirstProduct<Words> &product,
                                           float (&gain)[L::passes]) const {
#pragma unroll
    for (int i = 0; i < L::passes; i++)
      gain[i] = Gained ? toFloat(product.gain.template as<const T>()[column(i)]) : 1.0f;
  }

  // Statistics: of each slice mean and sum of squared differences; those of all slices make the
  // row's (Chan, Golub, LeVeque 1979)
  // -----------------------------------------------------------------------------------------------

  /// Of fp16 without a gain x is the operands of a product: with itself and with ones.
  template <bool Gained>
  __device__ __forceinline__ void sendStatistics(const float2 *to, u64 *barrier, NormKind norm) {
    float mean = 0.0f, squares = 0.0f;
    if constexpr (halves && !Gained) {
      constexpr unsigned ones = 0x3c003c00;
      constexpr int pieces = L::slice / 32;
      float sum[4][4] = {};
      const auto x = vectorIn(shared.x);
#pragma unroll
      for (int i = 0; i < pieces; i++) {
        const uint4 b = x(i);
        const unsigned low[4] = {b.x, ones, b.y, ones}, high[4] = {b.z, ones, b.w, ones};
        mma16816(sum[2 * i % 4], low, b.x, b.y);
        mma16816(sum[(2 * i + 1) % 4], high, b.z, b.w);
      }
      if (norm == NormKind::Layer)
        mean = ((sum[0][2] + sum[1][2]) + (sum[2][2] + sum[3][2])) * (1.0f / L::slice);
      squares = fmaxf(
          fmaf(-L::slice * mean, mean, (sum[0][0] + sum[1][0]) + (sum[2][0] + sum[3][0])), 0.0f);
    } else {
      // The same in each eight lanes.
      constexpr int each = L::slice / 8;
      float v[each];
#pragma unroll
      for (int i = 0; i < each; i += 4)
        loadFloats<4>(&shared.plain[8 * i + lane % 8 * 4], reinterpret_cast<float(&)[4]>(v[i]));
      if (norm == NormKind::Layer)
        mean = treeSum(v) * (1.0f / each);
#pragma unroll
      for (int i = 0; i < each; i++)
        v[i] = (v[i] - mean) * (v[i] - mean);
      squares = treeSum(v);
#pragma unroll
      for (int lanes = 1; lanes < 8; lanes *= 2) {
        const float otherMean = __shfl_xor_sync(fullWarp, mean, lanes),
                    otherSquares = __shfl_xor_sync(fullWarp, squares, lanes),
                    difference = otherMean - mean;
        squares = fmaf(difference * difference, 0.5f * each * lanes, squares + otherSquares);
        mean = 0.5f * (mean + otherMean);
      }
    }
    if (lane < ranks)
      send(remote(sharedAddress(to + rank), lane), mean, squares,
           remote(sharedAddress(barrier), lane));
  }
  /// One over the standard deviation, with the scale of the gain undone, and the mean.
  struct Moments {
    float scale, mean;
  };
  static __device__ __forceinline__ Moments moments(const float2 (&of)[ranks],
                                                    const FirstProduct<Words> &product) {
    float2 part[ranks];
#pragma unroll
    for (int i = 0; i < ranks; i += 2) {
      const float4 two = *reinterpret_cast<const float4 *>(&of[i]);
      part[i] = {two.x, two.y};
      part[i + 1] = {two.z, two.w};
    }
    float v[ranks];
#pragma unroll
    for (int i = 0; i < ranks; i++)
      v[i] = part[i].x;
    const float mean = treeSum(v) * (1.0f / ranks);
    if constexpr (halves) {
      // Of the means no differences: squares do not wait for the mean.
      float of[2] = {};
#pragma unroll
      for (int i = 0; i < ranks; i++) {
        of[i % 2] = fmaf(part[i].x, part[i].x, of[i % 2]);
        v[i] = part[i].y;
      }
      const float between = fmaf(-ranks * mean, mean, of[0] + of[1]);
      return {persistent::inverseRoot(fmaf(fmaf(fmaxf(between, 0.0f), L::slice, treeSum(v)),
                                           1.0f / C::D, product.epsilon)) *
                  product.normScale,
              mean};
    }
#pragma unroll
    for (int i = 0; i < ranks; i++)
      v[i] = fmaf((part[i].x - mean) * (part[i].x - mean), (float)L::slice, part[i].y);
    const float squares = treeSum(v);
    return {persistent::inverseRoot(fmaf(squares, 1.0f / C::D, product.epsilon)) *
                product.normScale,
            mean};
  }

  // First and second products
  // -----------------------------------------------------------------------------------------------

  /// The warp's tiles of a first product of Rows rows, and where their sums go, ahead of the wait
  /// for x.
  template <int Rows> struct FirstTiles;
  /// Scales of the lane's rows of a tile of the second product, ahead of the wait for its x.
  __device__ __forceinline__ float2 secondScales(const HalfRecord<Words> &half, int tile) const {
    if constexpr (sizeof(W) != 1)
      return {1.0f, 1.0f};
    return persistent::loadEarly(half.scales + rank * L::slice + tile * 16 + 2 * g);
  }
  /// Where the sum of column `at` of the block's columns of x goes, ahead of the product.
  __device__ __forceinline__ char *published(const HalfRecord<Words> &half, int at) const {
    char *to = reinterpret_cast<char *>(half.partials.word) + offset +
               partialAt(cluster, rank * L::slice + at) * 4;
    asm volatile("" : "+l"(to));
    return to;
  }
  __device__ __forceinline__ float outputScale(const HalfRecord<Words> &half) const {
    if constexpr (sizeof(W) != 1)
      return 1.0f;
    return __uint_as_float(persistent::loadWord(half.scales + rank * L::slice + warp * 8 + g));
  }
  /// Rows `row` and the next of a first product behind its norm.
  struct Constants {
    float2 sums, bias, scales;
  };
  __device__ __forceinline__ Constants constants(const FirstProduct<Words> &product,
                                                 int row) const {
    Constants c;
    c.bias = persistent::loadEarly(product.bias + row);
    c.sums = C::Norm == NormKind::Layer ? persistent::loadEarly(product.sums + row) : float2{};
    c.scales = sizeof(W) == 1 ? persistent::loadEarly(product.scales + row) : float2{1.0f, 1.0f};
    return c;
  }
  template <int Rows>
  __device__ __forceinline__ float2 gather(const float (&sum)[ranks][Rows], int row,
                                           const Constants &c, const Moments &m) const {
    float2 part[ranks];
#pragma unroll
    for (int i = 0; i < ranks; i++)
      part[i] = *reinterpret_cast<const float2 *>(&sum[i][row]);
#pragma unroll
    for (int step = 1; step < ranks; step *= 2)
#pragma unroll
      for (int i = 0; i < ranks; i += 2 * step) {
        part[i].x += part[i + step].x;
        part[i].y += part[i + step].y;
      }
    return {fmaf((part[0].x - m.mean * c.sums.x) * m.scale, c.scales.x, c.bias.x),
            fmaf((part[0].y - m.mean * c.sums.y) * m.scale, c.scales.y, c.bias.y)};
  }

  // Attention
  // -----------------------------------------------------------------------------------------------

  /// Of tile i of the slots that begin `first` behind the next one.
  __device__ __forceinline__ char *keys(int first, int i) const {
    return shared.ring[slotAt(first + i / L::slotTiles)] + i % L::slotTiles * L::tileBytes;
  }

  /// Of fp16 tiles of values, of each 16 columns.
  static constexpr int valueTiles = warps % 6 == 0 ? 6 : 4;
  struct Values {
    unsigned of[valueTiles][4];
  };
  /// Of the output projection, of warps that weigh no values: the last two and the first ones.
  static constexpr int outTiles = L::slice / 16;
  __device__ __forceinline__ int outTile() const {
    return warp + 2 >= warps ? warp + 2 - warps : warp + 2;
  }
  /// The warp's keys and values.
  struct HeadTiles {
    Tile<headDim> keys;
    Values values;
  };
  __device__ __forceinline__ void loadHead(const Keys<C> &k, int first, HeadTiles &to) const;
  __device__ __forceinline__ void attention(const HeadRecord<Words> &head, int past,
                                            const Keys<C> &k, const Constants &c, float2 outScales,
                                            HeadTiles &tiles);
  __device__ __forceinline__ float2 append(const HeadRecord<Words> &head, const Keys<C> &k,
                                           const Constants &ofQ, const Constants &ofNew);
  __device__ __forceinline__ void keep(const HeadRecord<Words> &head, int past, float2 value) const;
  __device__ __forceinline__ void scoreTile(const Keys<C> &k, const Tile<headDim> &key, float2 q,
                                            float scale);
  __device__ __forceinline__ void loadValues(const Keys<C> &k, int slots, int first,
                                             Values &to) const;
  __device__ __forceinline__ void weighValues(const Keys<C> &k, Values &values,
                                              const char *newValue);
  /// Keeps sums of at most keyTile * warps values in fp16.
  static constexpr float partScale = halves ? 1.0f / 256 : 1.0f;
  __device__ __forceinline__ float2 projectParts(const Tile<headDim> &weights) const;
  __device__ __forceinline__ void mlp(const HalfRecord<Words> &half, const Constants &c,
                                      float outScale, const OutputWords &words);
  __device__ __forceinline__ void loadConstants(const FirstProduct<Words> &product);
  __device__ __forceinline__ float constantOf(const FirstProduct<Words> &product, int n,
                                              int lane) const;
  __device__ __forceinline__ void vocabularyOfDigits(const VocabularyRecord<Words> &record);
  __device__ __forceinline__ Moments wholeOfX(const FirstProduct<Words> &product);
  __device__ __forceinline__ void best(u64 key);
  __device__ __forceinline__ void vocabulary(const VocabularyRecord<Words> &record);
  __device__ __forceinline__ void
  choose(const StepRecord<Words> &step, const ClusterEmbedRecord<Words> &embedding, unsigned third);
  __device__ __forceinline__ void compute(int layers, int steps);
  __device__ __forceinline__ void help(int layers, int steps);
};
#endif
} // namespace gpt2c::clusters

// What the blocks of clusters/clusters.cuh do in every stage: the ring, x, products and what is
// sent to other blocks.
#pragma once

#include "templates/decode_step/clusters/tile.cuh"

namespace gpt2c::clusters {
#if __CUDA_ARCH__ >= 900

template <typename C> struct Step : persistent::RingPlace<C::Slots> {
  using Ring = persistent::RingPlace<C::Slots>;
  using Ring::slot, Ring::lap, Ring::slotAt, Ring::lapAt, Ring::advance;
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
  __device__ __forceinline__ static void waitArrival(const Barrier &barrier, unsigned parity) {
    persistent::barrierWait(barrier, parity);
    __syncwarp();
  }

  // The ring
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ void waitSlot(int i) const {
    persistent::barrierWait(shared.full[slotAt(i)], lapAt(i));
    __syncwarp();
  }
  /// Gives n slots back, behind a barrier of those who have read them: the helper does so for all.
  __device__ __forceinline__ void release(int n) {
    if (lane < n)
      shared.empty[slotAt(lane)].arrive();
    __syncwarp();
    advance(n);
  }

  // Products: 16 rows of weights of a warp, of which lane (g, t) has 2 g and 2 g + 1
  // -----------------------------------------------------------------------------------------------

  template <int K, int Pitch = K> using Tile = WeightTile<C, K, Pitch>;
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
  template <bool Spare = false>
  __device__ __forceinline__ void receive(const HalfRecord<Words> &half) {
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
    auto at = [&](int i, int j) { return from + i * warps * 8 * C::Heads + j * 8; };
    auto wanted = [&](int, int j) { return first + j < C::Heads; };
    persistent::receivePieces<Spare ? 100 : 0>(v, at, wanted);
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

  /// Those of the block's slice to all blocks.
  template <bool Gained>
  __device__ __forceinline__ void sendStatistics(const float2 *to, Barrier &barrier, NormKind norm);
  /// One over the standard deviation, with the scale of the gain undone, and the mean.
  struct Moments {
    float scale, mean;
  };
  static __device__ __forceinline__ Moments moments(const float2 (&of)[ranks],
                                                    const FirstProduct<Words> &product);

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
    c.scales =
        Operand<W>::scaled ? persistent::loadEarly(product.scales + row) : float2{1.0f, 1.0f};
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

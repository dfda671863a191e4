// What a block has and does for several sequences at once, see persistent_cluster_batch.cuh.
#pragma once

#include "templates/persistent/persistent_cluster_stream.cuh"

namespace gpt2c::clusters {

/// Rows of x: one for each block of a cluster, or several groups of as many.
template <typename C> constexpr int groups = maxInt(C::Sequences / ranks, 1);
template <typename C> constexpr int rows = groups<C> * ranks;

/// Elements of T from one row in shared memory to the next, so that vectors of 16 bytes that a
/// quarter of a warp reads, four of each of two rows, are in different banks.
template <typename T> constexpr int rowPitch(int n) {
  return n * (int)sizeof(T) % 128 == 64 ? n : n + 64 / (int)sizeof(T);
}

/// A pair of sums of a first product on their way between blocks: in fp32, of several groups in
/// fp16, as the way is narrow. x is not normalised yet, so sums are scaled to stay in range.
template <int Groups> struct SumPair {
  using Type = __half2;
  static constexpr float scale = 1.0f / 16.0f;
};
template <> struct SumPair<1> {
  using Type = float2;
  static constexpr float scale = 1.0f;
};

template <typename C> struct Shared<C, true> {
  using L = Layout<C>;
  using T = typename C::T;
  alignas(128) char ring[C::Slots][L::slotBytes];
  alignas(16) StepRecords<C::Records> records;
  static constexpr int groups = clusters::groups<C>, rows = clusters::rows<C>;
  using Pair = typename SumPair<groups>::Type;
  /// Sums of first products of this block's sequences, with the statistics of their rows of x.
  template <int Rows> struct Sums {
    alignas(16) Pair sum[ranks][Rows / 2][groups];
    float2 statistics[groups][ranks];
    static constexpr int bytes = rows * (Rows * (int)sizeof(Pair) / 2 + 8); ///< that are sent
  };
  struct alignas(16) Parts {
    float out[L::warps + 1][headDim];
    float2 softmax[L::warps + 1]; ///< maximum (base 2) and sum
  };
  struct alignas(16) Head : Sums<L::headRows> {
    Parts parts[groups]; ///< what each warp has of attention
  };
  struct alignas(16) Halves {
    /// Sums of one product come when those of the other have been read by all that send it.
    union {
      Head head;
      Sums<L::hidden> mlp;
    };
    alignas(16) T out[rows][rowPitch<T>(headDim)]; ///< what the blocks have of it
    union {
      alignas(16) T hidden[rows][rowPitch<T>(L::hidden)];
      alignas(16) float plain[rows][rowPitch<float>(L::slice)]; ///< x without the gain
    };
  };
  /// The whole of x comes when all blocks have sent their statistics of it.
  union {
    Halves half;
    alignas(16) T whole[rows][rowPitch<T>(C::D)];
  };
  /// Of eight rows, sums of the second half of the hidden columns.
  float4 second[groups == 1 ? L::slice / 16 : 1][groups == 1 ? 32 : 1];
  union {
    alignas(16) T x[rows][rowPitch<T>(L::slice)]; ///< with the gain
    u64 best[rows][L::warps];                     ///< when all blocks have the whole of x
  };
  alignas(16) T query[groups][headDim]; ///< of this block's sequences
  float2 statistics[rows][ranks];       ///< of the whole of x
  float2 softmax[ranks];
  u64 full[C::Slots], empty[C::Slots];
  u64 arrived[6];
  u64 chosen; ///< the step's tokens have been
  int id[rows], past[rows];
};
enum { AtHidden = AtWhole + 1, AtStatistics };

/// Where rows of Columns weights are in a slot, so that what the lanes of a quarter of a warp read
/// of rows 2 g and the next even one, pieces of four vectors, is in different banks.
template <typename C, int Columns> struct StripOrder {
  static constexpr int piece = 32 * (int)sizeof(typename C::W), pieces = Columns / 32;
  static constexpr bool even = pieces % 2 == 0; ///< else rows begin in different banks
  static constexpr int mask = even ? minInt(pieces, 128 / piece) - 1 : 0;

  static __device__ __forceinline__ int exchanged(int i) {
    return even ? i : (i & ~3) | (i & 1) << 1 | (i >> 1 & 1);
  }
  /// The row in place i and the place of row i.
  static __device__ __forceinline__ int rowAt(int i) { return exchanged(i); }
  static __device__ __forceinline__ int placeOf(int i) { return exchanged(i); }
  /// The chunk of 16 bytes of the row in place i that is the slot's chunk `chunk` of it.
  static __device__ __forceinline__ int chunkAt(int i, int chunk) {
    return chunk ^ (rowAt(i) >> 1 & mask) * (piece / 16);
  }
  /// Where piece i of a row is.
  static __device__ __forceinline__ int pieceOf(int row, int i) { return i ^ (row >> 1 & mask); }
};

#if __CUDA_ARCH__ >= 900

/// The keys of this block: those of its sequence, or a share of them where sequences are fewer than
/// blocks.
template <typename C> struct RowKeys {
  static constexpr int shares = maxInt(ranks / C::Sequences, 1);
  int first, count, tiles, pairs; ///< pairs: slots of keys, each with one of values behind it
  __device__ __forceinline__ RowKeys(int past, int share) {
    const int all = ceilDiv(past, keyTile);
    first = all * share / shares * keyTile;
    count = min(past, all * (share + 1) / shares * keyTile) - first;
    tiles = ceilDiv(count, keyTile);
    pairs = ceilDiv(tiles, Layout<C>::slotTiles);
  }
  /// Those of the block's row of a group: none of a row beyond the batch.
  static __device__ __forceinline__ RowKeys of(const Shared<C> &shared, int batch, int rank,
                                               int group, int step) {
    const int n = group * ranks + rank;
    return {n % C::Sequences < batch ? shared.past[n] + step : 0, rank / C::Sequences};
  }
};

/// The best logit of each block for a row.
template <typename C>
__device__ __forceinline__ u64 *rowChoices(const StepRecord<Words> &step, unsigned third, int row) {
  return blockChoices<C>(step, persistent::clusterChoicesAt) +
         (third * rows<C> + row) * persistent::maxBlocks;
}

template <typename C> struct RowsStep : Step<C> {
  using Base = Step<C>;
  using L = Layout<C>;
  using T = typename C::T;
  using W = typename C::W;
  static constexpr int groups = clusters::groups<C>, rows = clusters::rows<C>,
                       together = minInt(groups, 2);
  static_assert(groups <= 2, "four groups are no faster than the graph");
  using Base::warps, Base::shared, Base::warp, Base::lane, Base::g, Base::t, Base::cluster,
      Base::rank, Base::offset, Base::slot, Base::lap, Base::turn, Base::advance, Base::distance,
      Base::slotAt, Base::waitSlot, Base::waitArrival, Base::refresh, Base::moments;
  using typename Base::Constants;
  using typename Base::Moments;

  float2 residual[clusters::groups<C>];

  __device__ __forceinline__ int batch() const { return shared.records.step().batch; }

  // The ring
  // -----------------------------------------------------------------------------------------------

  /// A slot is free when this many have given it back.
  static constexpr int users = L::slotTiles;

  __device__ __forceinline__ void giveBack(int i, int times) const {
    persistent::barrierArrive(&shared.empty[slotAt(i)], times);
  }
  /// Gives the next n slots back for all, behind a barrier of those who have read them.
  __device__ __forceinline__ void giveBackAll(int n) {
    if (lane < n)
      giveBack(lane, users);
    __syncwarp();
    advance(n);
  }

  // Products: 16 rows of weights of a warp times the rows of x
  // -----------------------------------------------------------------------------------------------

  /// Rows 2 g and 2 g + 1 of a tile from column `column` on, once they are there.
  template <int K, int Pitch>
  __device__ __forceinline__ void loadStrip(typename Base::template Tile<K, Pitch> &to, int first,
                                            int tile, int column = 0) const {
    using Order = StripOrder<C, Pitch>;
    constexpr int each = L::slotWeights / Pitch;
    static_assert(each % 8 == 0);
    waitSlot(first + tile * 16 / each);
    if (each % 16 != 0)
      waitSlot(first + (tile * 16 + 15) / each);
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const int row = tile * 16 + 2 * g + j, place = Order::placeOf(row % each);
      const char *from = shared.ring[slotAt(first + row / each)] + place * Pitch * (int)sizeof(W);
#pragma unroll
      for (int i = 0; i < K / 32; i++) {
        const char *at = from + Order::pieceOf(row, column / 32 + i) * Order::piece;
        if constexpr (sizeof(W) == 2) {
          to.w[i][j] = reinterpret_cast<const uint4 *>(at)[t];
        } else {
          const uint2 word = reinterpret_cast<const uint2 *>(at)[t];
          const quantised::HalfPairs a = quantised::halves(word.x), b = quantised::halves(word.y);
          to.w[i][j] = {a.low, a.high, b.low, b.high};
        }
      }
    }
  }
  /// x: vector i of the lane's, of row g.
  template <typename P, typename X>
  static __device__ __forceinline__ void multiply(const P &tile, float (&out)[4], X &&x) {
    constexpr int chains = P::pieces % 2 ? 3 : 4;
    float sum[chains][4] = {};
#pragma unroll
    for (int i = 0; i < P::pieces; i++) {
      const uint4 b = x(i);
      const unsigned low[4] = {tile.w[i][0].x, tile.w[i][1].x, tile.w[i][0].y, tile.w[i][1].y};
      const unsigned high[4] = {tile.w[i][0].z, tile.w[i][1].z, tile.w[i][0].w, tile.w[i][1].w};
      mma16816(sum[2 * i % chains], low, b.x, b.y);
      mma16816(sum[(2 * i + 1) % chains], high, b.z, b.w);
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
      out[j] = sum[0][j];
#pragma unroll
      for (int c = 1; c < chains; c++)
        out[j] += sum[c][j];
    }
  }
  /// Of the rows of group `group`.
  template <int Pitch>
  __device__ __forceinline__ auto rowsIn(const T (&x)[rows][Pitch], int group,
                                         int column = 0) const {
    return [at = reinterpret_cast<const uint4 *>(&x[group * ranks + g][column]) + t](int i) {
      return at[i * 4];
    };
  }
  /// The sums of row n of each group go to block n.
  template <typename Sums>
  __device__ __forceinline__ void sendRowSums(const float (&sum)[groups][4], Sums &to, u64 *barrier,
                                              int tile) {
    const unsigned at = sharedAddress(&to.sum[rank][tile * 8 + g]), done = sharedAddress(barrier);
    constexpr float scale = SumPair<groups>::scale;
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const unsigned there = distance(2 * t + j);
      auto pair = [&](int i) { return packHalves(sum[i][j] * scale, sum[i][2 + j] * scale); };
      if constexpr (groups == 1)
        send(at + there, sum[0][j], sum[0][2 + j], done + there);
      else if constexpr (groups == 2)
        send(at + there, __uint_as_float(pair(0)), __uint_as_float(pair(1)), done + there);
      else
        send(at + there, uint4{pair(0), pair(1), pair(2), pair(3)}, done + there);
    }
  }
  /// Rows `row` and the next of a first product behind its norm, of the block's sequences of a
  /// pair of groups.
  template <typename Sums>
  __device__ __forceinline__ void gatherRows(const Sums &sums, int groupPair, int row,
                                             const Constants &c, const FirstProduct<Words> &product,
                                             float2 (&to)[together]) const {
    float v[together][2] = {};
#pragma unroll
    for (int i = 0; i < ranks; i++) {
      const auto *from = &sums.sum[i][row / 2][groupPair * together];
      float2 part[together];
      if constexpr (together == 1) {
        part[0] = *from;
      } else {
        const uint2 words = *reinterpret_cast<const uint2 *>(from);
        part[0] = __half22float2(*reinterpret_cast<const __half2 *>(&words.x));
        part[1] = __half22float2(*reinterpret_cast<const __half2 *>(&words.y));
      }
#pragma unroll
      for (int j = 0; j < together; j++) {
        v[j][0] += part[j].x;
        v[j][1] += part[j].y;
      }
    }
    constexpr float back = 1.0f / SumPair<groups>::scale;
#pragma unroll
    for (int j = 0; j < together; j++) {
      const Moments m = moments(sums.statistics[groupPair * together + j], product);
      to[j] = {fmaf((v[j][0] * back - m.mean * c.sums.x) * m.scale, c.scales.x, c.bias.x),
               fmaf((v[j][1] * back - m.mean * c.sums.y) * m.scale, c.scales.y, c.bias.y)};
    }
  }
  template <int N> struct FirstProducts {
    static constexpr int tiles = N / 16, count = ceilDiv(tiles, warps);
    typename Base::template Tile<L::slice> weights[count];
    __device__ __forceinline__ explicit FirstProducts(RowsStep &step) {
      // Without a condition, else what is not loaded would have to be kept.
#pragma unroll
      for (int i = 0; i < count; i++)
        step.loadStrip(weights[i], 0, min(step.warp + i * warps, tiles - 1));
      step.advance(N / 64);
    }
    template <typename Sums>
    __device__ __forceinline__ void multiply(RowsStep &step, Sums &sums, int at) const {
#pragma unroll
      for (int i = 0; i < count; i++)
        if (const int tile = step.warp + i * warps; tile < tiles) {
          float sum[groups][4];
#pragma unroll
          for (int j = 0; j < groups; j++)
            RowsStep::multiply(weights[i], sum[j], step.rowsIn(step.shared.x, j));
          step.sendRowSums(sum, sums, &step.shared.arrived[at], tile);
        }
    }
  };
  /// Publishes sums of 16 columns of a group of rows: 8 bytes a lane, columns 2 g and the next of
  /// rows 2 t and the next.
  __device__ __forceinline__ void publishRows(const HalfRecord<Words> &half, int tile, int group,
                                              const float (&sum)[4], float2 scale) {
    char *const to = reinterpret_cast<char *>(half.partials.word) + offset +
                     (((group * C::Heads + cluster) * ranks + rank) * L::slice / 16 + tile) * 256 +
                     lane * 8;
    persistent::contributePair(to, (u64)persistent::channelWord(sum[2] * scale.y, sum[3] * scale.y)
                                           << 32 |
                                       persistent::channelWord(sum[0] * scale.x, sum[1] * scale.x));
  }
  /// 16 bytes, of which each of the four lanes of one g has a word, to all blocks.
  __device__ __forceinline__ void sendVector(unsigned word, unsigned to, int barrier) {
    uint4 v;
    v.x = __shfl_sync(fullWarp, word, g * 4);
    v.y = __shfl_sync(fullWarp, word, g * 4 + 1);
    v.z = __shfl_sync(fullWarp, word, g * 4 + 2);
    v.w = __shfl_sync(fullWarp, word, g * 4 + 3);
    const unsigned low = distance(t), high = distance(t + 4),
                   done = sharedAddress(&shared.arrived[barrier]);
    send(to + low, v, done + low);
    send(to + high, v, done + high);
  }

  // x: a lane has a pair of columns of a row
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ int column() const {
    return (warp * 4 + lane % 8 / 2) * 2;
  } ///< of the slice
  __device__ __forceinline__ int row() const { return lane % 2 * 4 + lane / 16 * 2 + lane / 8 % 2; }
  __device__ __forceinline__ void embedRows(const ClusterEmbedRecord<Words> &r, int step) {
    const int at = rank * L::slice + column();
#pragma unroll
    for (int i = 0; i < groups; i++) {
      const int n = i * ranks + row(), id = shared.id[n],
                position = max(0, min(shared.past[n] + step, r.positionCount - 1));
      float v[2];
      loadFloats<2>(r.tokens.template as<const typename C::Embedding>() + (i64)id * C::D + at, v);
      if constexpr (C::Groups > 0) {
        const float scale = r.scales[(i64)id * C::Groups + at / (C::D / C::Groups)];
        v[0] *= scale;
        v[1] *= scale;
      }
      if constexpr (C::Position) {
        float w[2];
        loadFloats<2>(r.positions.template as<const T>() + (i64)position * C::D + at, w);
        v[0] += w[0];
        v[1] += w[1];
      }
      residual[i] = {v[0], v[1]};
    }
  }
  __device__ __forceinline__ void receiveRows(const HalfRecord<Words> &half) {
    constexpr int loads = ceilDiv(C::Heads, 4);
    const int source = lane / 8;
    const uint4 *from = reinterpret_cast<const uint4 *>(
                            reinterpret_cast<const char *>(half.partials.word) + offset) +
                        (source * ranks + rank) * L::slice + warp * 8 + lane % 8;
    const float2 bias = persistent::loadEarly(half.bias + rank * L::slice + column());
    uint4 v[groups][loads] = {};
    Patience patience;
    bool missing;
    do {
      missing = false;
#pragma unroll
      for (int n = 0; n < groups; n++)
#pragma unroll
        for (int i = 0; i < loads; i++)
          persistent::loadGroup(v[n][i], from + (n * C::Heads + i * 4) * ranks * L::slice,
                                source + i * 4 < C::Heads && (v[n][i].y == 0 || v[n][i].w == 0));
#pragma unroll
      for (int n = 0; n < groups; n++)
#pragma unroll
        for (int i = 0; i < loads; i++)
          missing |= source + i * 4 < C::Heads && (v[n][i].y == 0 || v[n][i].w == 0);
      patience.spend();
    } while (__any_sync(fullWarp, missing));
    // Of words 0 .. 3: columns 0 and 1 of rows 0 and 1, then of rows 2 and 3.
    const bool late = lane & 16, odd = lane & 8;
#pragma unroll
    for (int n = 0; n < groups; n++) {
      float2 sum[4] = {};
#pragma unroll
      for (int i = 0; i < loads; i++) {
        const unsigned word[4] = {v[n][i].x, v[n][i].y, v[n][i].z, v[n][i].w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const float2 a = __half22float2(*reinterpret_cast<const __half2 *>(&word[j]));
          sum[j].x += a.x;
          sum[j].y += a.y;
        }
      }
      float2 two[2];
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const float2 give = late ? sum[j] : sum[2 + j], keep = late ? sum[2 + j] : sum[j];
        two[j] = {keep.x + __shfl_xor_sync(fullWarp, give.x, 16),
                  keep.y + __shfl_xor_sync(fullWarp, give.y, 16)};
      }
      residual[n].x += (odd ? two[0].y : two[0].x) +
                       __shfl_xor_sync(fullWarp, odd ? two[0].x : two[0].y, 8) + bias.x;
      residual[n].y += (odd ? two[1].y : two[1].x) +
                       __shfl_xor_sync(fullWarp, odd ? two[1].x : two[1].y, 8) + bias.y;
    }
  }
  template <bool Gained>
  __device__ __forceinline__ float2 loadRowGain(const FirstProduct<Words> &product) const {
    if constexpr (!Gained)
      return {1.0f, 1.0f};
    float v[2];
    loadFloats<2>(product.gain.template as<const T>() + rank * L::slice + column(), v);
    return {v[0], v[1]};
  }
  __device__ __forceinline__ void storeRows(float2 gain) {
#pragma unroll
    for (int i = 0; i < groups; i++) {
      const int n = i * ranks + row();
      *reinterpret_cast<float2 *>(&shared.half.plain[n][column()]) = residual[i];
      const float v[2] = {residual[i].x * gain.x, residual[i].y * gain.y};
      storeFloats<2>(&shared.x[n][column()], v);
    }
  }
  /// Mean and sum of squared differences of the lane's row of a group, g.
  __device__ __forceinline__ float2 rowStatistics(NormKind norm, int group) const {
    constexpr int vectors = L::slice / 16;
    float4 v[vectors];
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < vectors; i++) {
      v[i] =
          *reinterpret_cast<const float4 *>(&shared.half.plain[group * ranks + g][(i * 4 + t) * 4]);
      sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
    }
    float mean = 0.0f;
    if (norm == NormKind::Layer)
      mean = warpReduce<Sum, 4>(sum) * (1.0f / L::slice);
#pragma unroll
    for (int i = 0; i < vectors; i++) {
      squares = fmaf(v[i].x - mean, v[i].x - mean, squares);
      squares = fmaf(v[i].y - mean, v[i].y - mean, squares);
      squares = fmaf(v[i].z - mean, v[i].z - mean, squares);
      squares = fmaf(v[i].w - mean, v[i].w - mean, squares);
    }
    return {mean, warpReduce<Sum, 4>(squares)};
  }
  /// Those of row n of each group to block n.
  __device__ __forceinline__ void sendRowStatistics(const float2 (&to)[groups][ranks],
                                                    int barrier) const {
#pragma unroll 2
    for (int i = 0; i < groups; i++) {
      const float2 v = rowStatistics(C::Norm, i);
      if (t == 0)
        send(remote(sharedAddress(&to[i][rank]), g), v.x, v.y,
             remote(sharedAddress(&shared.arrived[barrier]), g));
    }
  }

  // MLP
  // -----------------------------------------------------------------------------------------------

  /// The second half of the warps has the second half of the hidden columns, or of several groups.
  __device__ __forceinline__ void mlpRows(const HalfRecord<Words> &half) {
    auto &sums = shared.half.mlp;
    constexpr int outTiles = L::slice / 16, columns = groups == 1 ? L::hidden / 2 : L::hidden,
                  ofPair = L::hidden / 64, middle = ofPair * (groups / together);
    static_assert(2 * outTiles == warps && middle <= warps && L::hidden % 64 == 0);
    const int tile = warp % outTiles, part = warp / outTiles;
    const int groupPair = warp / ofPair, hiddenRow = warp % ofPair * 64 + 2 * lane;
    Constants c;
    if (warp < middle)
      c = Base::constants(half.first, cluster * L::hidden + hiddenRow);
    const float2 outScales = Base::secondScales(half, tile);
    typename Base::template Tile<columns, L::hidden> weights;
    loadStrip(weights, 0, tile, groups == 1 ? part * columns : 0);
    advance(L::outputSlots);
    waitArrival(&shared.arrived[AtMlp], turn & 1);
    if (threadIdx.x == 0)
      persistent::barrierExpect(&shared.arrived[AtMlp], sums.bytes);
    if (warp < middle) {
      float2 v[together];
      gatherRows(sums, groupPair, hiddenRow, c, half.first, v);
#pragma unroll
      for (int j = 0; j < together; j++) {
        float out[2] = {v[j].x, v[j].y};
        persistent::activate<C::Function>(out);
        sendVector(
            packHalves(out[0], out[1]),
            sharedAddress(
                &shared.half.hidden[(groupPair * together + j) * ranks + rank][hiddenRow / 8 * 8]),
            AtHidden);
      }
    }
    waitArrival(&shared.arrived[AtHidden], turn & 1);
    if (threadIdx.x == 0)
      persistent::barrierExpect(&shared.arrived[AtHidden], rows * L::hidden * (int)sizeof(T));
    if constexpr (groups == 1) {
      float sum[4];
      multiply(weights, sum, rowsIn(shared.half.hidden, 0, part * columns));
      if (part == 1)
        shared.second[tile][lane] = {sum[0], sum[1], sum[2], sum[3]};
      Base::template sync<3, warps + 1>();
      if (part == 0) {
        const float4 other = shared.second[tile][lane];
        sum[0] += other.x;
        sum[1] += other.y;
        sum[2] += other.z;
        sum[3] += other.w;
        publishRows(half, tile, 0, sum, outScales);
      }
    } else {
      publishProducts(half, weights, shared.half.hidden, tile, part, outScales);
      Base::template sync<3, warps + 1>();
    }
  }
  /// Of one half of the groups.
  template <typename P, int Pitch>
  __device__ __forceinline__ void publishProducts(const HalfRecord<Words> &half, const P &weights,
                                                  const T (&x)[rows][Pitch], int tile, int part,
                                                  float2 scales) {
#pragma unroll
    for (int i = 0; i < groups / 2; i++) {
      const int group = part * (groups / 2) + i;
      float sum[4];
      multiply(weights, sum, rowsIn(x, group));
      publishRows(half, tile, group, sum, scales);
    }
  }

  __device__ __forceinline__ void attentionRows(const HeadRecord<Words> &head, int step);
  __device__ __forceinline__ void newTokens(const HeadRecord<Words> &head, int step);
  __device__ __forceinline__ void vocabularyRows(const VocabularyRecord<Words> &record);
  __device__ __forceinline__ void compute(int layers, int steps);
  __device__ __forceinline__ void help(int layers, int steps);
};
#endif
} // namespace gpt2c::clusters

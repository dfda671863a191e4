// What a block does for several sequences at once, see clusters/batch.cuh.
#pragma once

#include "templates/decode_step/clusters/rows_block.cuh"
#include "templates/decode_step/clusters/statistics.cuh"

namespace gpt2c::clusters {

#if __CUDA_ARCH__ >= 900

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
    shared.empty[slotAt(i)].arrive(times);
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
          const HalfPairs a = Operand<W>::halves(word.x), b = Operand<W>::halves(word.y);
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
  __device__ __forceinline__ void sendRowSums(const float (&sum)[groups][4], Sums &to,
                                              Barrier &barrier, int tile) {
    const unsigned at = sharedAddress(&to.sum[rank][tile * 8 + g]), done = barrier.address();
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
          step.sendRowSums(sum, sums, step.shared.arrived[at], tile);
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
                   done = shared.arrived[barrier].address();
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
    persistent::receivePieces(
        v, [&](int n, int i) { return from + (n * C::Heads + i * 4) * ranks * L::slice; },
        [&](int, int i) { return source + i * 4 < C::Heads; });
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
             remote(shared.arrived[barrier].address(), g));
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
    waitArrival(shared.arrived[AtMlp], turn & 1);
    if (threadIdx.x == 0)
      shared.arrived[AtMlp].expect(sums.bytes);
    if (warp < middle) {
      float2 v[together];
      gatherRows(sums, groupPair, hiddenRow, c, half.first, v);
#pragma unroll
      for (int j = 0; j < together; j++) {
        float out[2] = {v[j].x, v[j].y};
        C::Function::apply(out);
        sendVector(
            packHalves(out[0], out[1]),
            sharedAddress(
                &shared.half.hidden[(groupPair * together + j) * ranks + rank][hiddenRow / 8 * 8]),
            AtHidden);
      }
    }
    waitArrival(shared.arrived[AtHidden], turn & 1);
    if (threadIdx.x == 0)
      shared.arrived[AtHidden].expect(rows * L::hidden * (int)sizeof(T));
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
  __device__ __forceinline__ void sendPart(int n);
  __device__ __forceinline__ void publishAttention(const HeadRecord<Words> &head);
  __device__ __forceinline__ void keepPart(int n, float (&out)[8][4], float top, float sum);
  __device__ __forceinline__ void newTokens(const HeadRecord<Words> &head, int step);
  __device__ __forceinline__ void gatherWhole();
  __device__ __forceinline__ void vocabularyProducts(const W *from, float (&v)[groups][2]);
  __device__ __forceinline__ void vocabularyRows(const VocabularyRecord<Words> &record);
  __device__ __forceinline__ void compute(int layers, int steps);
  __device__ __forceinline__ void help(int layers, int steps);
};
#endif
} // namespace gpt2c::clusters

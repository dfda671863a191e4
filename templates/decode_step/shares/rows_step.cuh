// What the blocks of shares/rows.cuh do in every stage: x, products, the MLP.
#pragma once

#include "templates/decode_step/shares/groups.cuh"
#include "templates/decode_step/shares/rows_block.cuh"

namespace gpt2c::shares {
#if __CUDA_ARCH__ >= 900

template <typename C> struct RowsStep : Step<C> {
  using Base = Step<C>;
  using L = Layout<C>;
  using T = typename C::T;
  using W = typename C::W;
  using M = RowsShared<C>;
  static constexpr int rows = C::Rows, ranks = C::Ranks;
  using Base::shared, Base::place, Base::warp, Base::lane, Base::g, Base::t, Base::slot, Base::lap,
      Base::turn, Base::offset, Base::refresh, Base::waitArrival, Base::slotAt, Base::waitSlot,
      Base::release, Base::advance, Base::vectorIn, Base::moments, Base::constants;
  using typename Base::Constants;
  using typename Base::Moments;
  using typename Base::TileSum;

  /// Of two columns of four sequences, which this thread adds up out of half of the clusters, or of
  /// all: unit `unit` of those of the slice.
  float2 mine[4];
  static constexpr int sliceTiles = ceilDiv(L::slice, tileRows), units = sliceTiles * tileRows,
                       parts = 2 * units <= warps * 32 ? 2 : 1;
  static_assert(units <= warps * 32);
  __device__ __forceinline__ int unit() const { return (int)threadIdx.x / parts; }
  __device__ __forceinline__ int column() const { return unit() / 16 * 16 + unit() % 16 / 2 * 2; }
  __device__ __forceinline__ int firstRow() const { return unit() % 2 * 4; }
  __device__ __forceinline__ bool inside() const {
    return unit() < units && column() < place.columns;
  }
  __device__ __forceinline__ int nearColumn() const { return min(column(), place.columns - 2); }

  __device__ __forceinline__ int batch() const { return shared.step().batch; }
  /// Whether the block's sequence exists.
  __device__ __forceinline__ bool exists() const { return place.rank < batch(); }

  // x
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ void embedRows(const ClusterEmbedRecord<Words> &r, int step) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      mine[i] = {};
    if (!inside())
      return;
    const int c = place.rank * L::slice + column();
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int row = firstRow() + i;
      mine[i] = Base::tokenPair(r, shared.id[row], shared.past[row] + step, c);
    }
  }
  /// Where a tile of 16 columns of a cluster's partial sums is: 8 bytes of each lane of the warp
  /// that made it, of columns 2 g and the next of sequences 2 t and the next.
  __device__ __forceinline__ char *partialTile(const HalfRecord<Words> &half, int source,
                                               int tile) const {
    return reinterpret_cast<char *>(half.partials.word) + offset +
           ((source * ranks + place.rank) * sliceTiles + tile) * 256;
  }
  /// Adds up what `Sources` clusters of each member have published, of columns and sequences as
  /// mine.
  template <int Sources>
  __device__ __forceinline__ void receiveRowsOfMembers(float2 (&sum)[4],
                                                       const HalfRecord<Words> &half) {
    constexpr int all = C::Members * Sources, each = ceilDiv(all, parts),
                  together = each < 8 ? each : 8;
#pragma unroll 1
    for (int begin = 0; begin < each; begin += together) {
      const int first = (int)threadIdx.x % parts + begin * parts;
      const char *const from = partialTile(half, first, unit() / 16) + unit() % 16 * 16;
      constexpr int distance = parts * ranks * sliceTiles * 256;
      WordPair v[1][together];
#pragma unroll
      for (int i = 0; i < together; i++)
        v[0][i] = {this->missing(), this->missing()};
      this->await(
          v, [&](int, int i) { return from + i * distance; },
          [&](int, int i) { return inside() && begin + i < each && first + i * parts < all; },
          [&](int, int i) { return (first + i * parts) / Sources; });
#pragma unroll
      for (int i = 0; i < together; i++) {
        const unsigned word[4] = {(unsigned)v[0][i].first & ~1u, (unsigned)(v[0][i].first >> 32),
                                  (unsigned)v[0][i].second & ~1u, (unsigned)(v[0][i].second >> 32)};
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const float2 part = Mma<T>::unpack(word[j]);
          sum[j].x += part.x;
          sum[j].y += part.y;
        }
      }
    }
    this->round++;
  }
  /// Adds what `sources` clusters, at most Most, have published behind a half to x.
  template <int Most>
  __device__ __forceinline__ void receiveRows(const HalfRecord<Words> &half, int sources) {
    constexpr int each = ceilDiv(Most, parts), together = each < 8 ? each : 8;
    const int c = place.rank * L::slice + nearColumn();
    const float2 bias = C::Bias ? persistent::loadEarly(half.bias + c) : float2{},
                 scale = L::rowScales ? persistent::loadEarly(half.scales + c) : float2{};
    float2 sum[4] = {};
    if constexpr (C::Members > 1) {
      receiveRowsOfMembers<Most>(sum, half);
    } else {
#pragma unroll
      for (int begin = 0; begin < each; begin += together) {
        const int first = (int)threadIdx.x % parts + begin * parts;
        const char *const from = partialTile(half, first, unit() / 16) + unit() % 16 * 16;
        constexpr int distance = parts * ranks * sliceTiles * 256;
        uint4 v[1][together] = {};
        persistent::receivePieces(
            v, [&](int, int i) { return from + i * distance; },
            [&](int, int i) {
              return inside() && begin + i < each && first + i * parts < sources;
            });
#pragma unroll
        for (int i = 0; i < together; i++) {
          const unsigned word[4] = {v[0][i].x, v[0][i].y, v[0][i].z, v[0][i].w};
#pragma unroll
          for (int j = 0; j < 4; j++) {
            const float2 part = Mma<T>::unpack(word[j]);
            sum[j].x += part.x;
            sum[j].y += part.y;
          }
        }
      }
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
      if constexpr (parts == 2) {
        sum[j].x += __shfl_xor_sync(fullWarp, sum[j].x, 1);
        sum[j].y += __shfl_xor_sync(fullWarp, sum[j].y, 1);
      }
      if constexpr (L::rowScales) {
        sum[j].x *= scale.x;
        sum[j].y *= scale.y;
      }
      mine[j].x += sum[j].x + bias.x;
      mine[j].y += sum[j].y + bias.y;
    }
  }
  template <bool Gained>
  __device__ __forceinline__ float2 rowGain(const FirstProduct<Words> &product) const {
    if constexpr (Gained)
      return Mma<T>::unpack(*reinterpret_cast<const unsigned *>(
          product.gain.template as<const T>() + place.rank * L::slice + nearColumn()));
    else
      return {1.0f, 1.0f};
  }
  /// Leaves the slice in shared memory.
  __device__ __forceinline__ void storeRows(float2 gain) {
    if (inside() && threadIdx.x % parts == 0)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int row = firstRow() + i;
        *reinterpret_cast<float2 *>(&shared.plain[row][column()]) = mine[i];
        *reinterpret_cast<unsigned *>(&shared.x[row][column()]) =
            Mma<T>::pack(mine[i].x * gain.x, mine[i].y * gain.y);
      }
  }
  /// Of the slice of sequence g, by one warp; as sendStatistics().
  __device__ __forceinline__ float2 rowStatistics(NormKind norm) const {
    const float *const from = shared.plain[g];
    float sum = 0.0f, squares = 0.0f;
    if (norm == NormKind::Layer) {
#pragma unroll 4
      for (int c = 2 * t; c < place.columns; c += 8) {
        const float2 v = *reinterpret_cast<const float2 *>(from + c);
        sum += v.x + v.y;
      }
      sum += __shfl_xor_sync(fullWarp, sum, 1);
      sum += __shfl_xor_sync(fullWarp, sum, 2);
    }
    const float mean = __fdividef(sum, (float)place.columns);
#pragma unroll 4
    for (int c = 2 * t; c < place.columns; c += 8) {
      const float2 v = *reinterpret_cast<const float2 *>(from + c);
      squares = fmaf(v.x - mean, v.x - mean, fmaf(v.y - mean, v.y - mean, squares));
    }
    squares += __shfl_xor_sync(fullWarp, squares, 1);
    squares += __shfl_xor_sync(fullWarp, squares, 2);
    return {sum, squares};
  }
  /// Those of each sequence to its block.
  __device__ __forceinline__ void sendRowStatistics(const float2 *to, Arrival at) const {
    const float2 v = rowStatistics(C::Norm);
    if (t == 0)
      send(remote(sharedAddress(to + place.rank), g), v.x, v.y,
           remote(shared.arrived[at].address(), g));
  }
  __device__ __forceinline__ void sendWholeStatistics() const {
    const float2 v = rowStatistics(C::FinalNorm);
#pragma unroll
    for (int block = t; block < ranks; block += 4)
      send(remote(sharedAddress(&shared.whole.statistics[g][place.rank]), block), v.x, v.y,
           remote(shared.arrived[AtWhole].address(), block));
  }

  // Products
  // -----------------------------------------------------------------------------------------------

  /// Rows 2 g (0, 1) and 2 g + 1 (2, 3) of a tile with sequences 2 t (0, 2) and 2 t + 1 (1, 3).
  static __device__ __forceinline__ float total(const TileSum &sum, int i) {
    return sum[0][i] + sum[1][i] + (sum[2][i] + sum[3][i]);
  }
  /// The slices of x times the cluster's rows: sums of each sequence to its block.
  template <typename P, typename Sums>
  __device__ __forceinline__ void firstOfRows(Sums &sums, Arrival at, int tiles) {
    Base::template multiply<P>(
        0, tiles, [&](int chunk) { return vectorIn(&shared.x[g][chunk * P::columns]); },
        [&](int row, const TileSum &sum) {
#pragma unroll
          for (int i = 0; i < 2; i++)
            send(remote(sharedAddress(&sums.sum[place.rank][row]), 2 * t + i), total(sum, i),
                 total(sum, 2 + i), remote(shared.arrived[at].address(), 2 * t + i));
        });
    advance(ceilDiv(tiles, P::each) * P::chunks);
  }
  /// Rows of the block's slice times what the cluster has of all sequences, as its partial sums.
  template <typename P, typename X>
  __device__ __forceinline__ void secondOfRows(const HalfRecord<Words> &half, int sources,
                                               int first, X &&x) const {
    Base::template multiply<P>(first, P::tiles, x, [&](int row, const TileSum &sum) {
      if constexpr (C::Members > 1) {
        const int source = this->member * sources + place.cluster;
        if (row < place.columns)
          this->publish(shared.peers, partialTile(half, source, row / tileRows) + lane * 8,
                        (u64)Mma<T>::pack(total(sum, 1), total(sum, 3)) << 32 |
                            (Mma<T>::pack(total(sum, 0), total(sum, 2)) & ~1u) | this->bit);
      } else {
        if (row < place.columns)
          persistent::contributePair(partialTile(half, place.cluster, row / tileRows) + lane * 8,
                                     (u64)word(total(sum, 1), total(sum, 3)) << 32 |
                                         word(total(sum, 0), total(sum, 2)));
      }
    });
  }
  /// A word of a channel: two columns.
  static __device__ __forceinline__ unsigned word(float a, float b) {
    const unsigned bits = Mma<T>::pack(a, b);
    return bits == 0 ? 0x80000000u : bits;
  }
  /// Vectors of 16 bytes of the block's sequence to all blocks: each of four lanes has a word.
  __device__ __forceinline__ void sendWords(unsigned word, T *to, Arrival at) const {
    uint4 v;
    v.x = __shfl_sync(fullWarp, word, g * 4);
    v.y = __shfl_sync(fullWarp, word, g * 4 + 1);
    v.z = __shfl_sync(fullWarp, word, g * 4 + 2);
    v.w = __shfl_sync(fullWarp, word, g * 4 + 3);
    if (to != nullptr)
#pragma unroll
      for (int block = t; block < ranks; block += 4)
        send(remote(sharedAddress(to), block), v, remote(shared.arrived[at].address(), block));
  }
  /// The block's part of an MLP behind `receiveRows` and `storeRows`.
  __device__ __forceinline__ void mlpOfRows(const HalfRecord<Words> &half, const Constants &c) {
    const int pair = threadIdx.x;
    waitArrival(AtMlp, turn);
    float2 v = {};
    const bool has = 2 * pair < place.hidden.count;
    if (has)
      v = Base::hiddenPair(half, pair, c);
    sendWords(Mma<T>::pack(v.x, v.y), has ? &shared.hidden[place.rank][pair / 4 * 8] : nullptr,
              AtHidden);
    waitArrival(AtHidden, turn);
    secondOfRows<typename L::Output>(half, place.clusters, 0, [&](int chunk) {
      return vectorIn(&shared.hidden[g][chunk * L::Output::columns]);
    });
    advance(L::Output::slots);
  }

  /// Whether a thread has one pair of q at most, which does not turn: its constants are loaded
  /// ahead. With a state in pages there are no registers for them.
  static constexpr bool early =
      C::Rotary == 0 && C::HeadsEach * C::HeadDim / 2 <= warps * 32 && !isPaged<C>;
  __device__ __forceinline__ Constants constantsOfQ(const HeadRecord<Words> &head) const {
    if constexpr (early)
      return constants(head.half.first,
                       place.queryRow(0) + min(2 * (int)threadIdx.x, place.heads * C::HeadDim - 2));
    else
      return {};
  }
  __device__ __forceinline__ void queries(const HeadRecord<Words> &head, const Moments &m,
                                          const Constants &ofQ);
  __device__ __forceinline__ void newToken(const HeadRecord<Words> &head, int past);
  __device__ __forceinline__ void attendToKeys(int keyHead, int first, int past, float scale);
  __device__ __forceinline__ void sendAttended(int past);
  __device__ __forceinline__ void attentionOfRows(const HeadRecord<Words> &head, int past,
                                                  const Constants &ofQ);
  __device__ __forceinline__ void vocabularyOfRows(const VocabularyRecord<Words> &record, int step);
  __device__ __forceinline__ void chooseRows(const StepRecord<Words> &step, unsigned third);
  __device__ __forceinline__ void chooseRowsOfMembers(const StepRecord<Words> &step, unsigned use);
  __device__ __forceinline__ void compute(int steps);
  __device__ __forceinline__ void help(int steps);
};
#endif
} // namespace gpt2c::shares

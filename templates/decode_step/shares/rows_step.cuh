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
      Base::release, Base::advance, Base::own, Base::vectorIn, Base::moments, Base::constants;
  using typename Base::Constants;
  using typename Base::Moments;
  using typename Base::TileSum;

  /// Of two columns of four sequences each, which this thread adds up out of half of the clusters,
  /// or of all: units `unit(0)` and following of those of the slice.
  static constexpr int consumers = warps * 32, sliceTiles = ceilDiv(L::slice, tileRows),
                       ofGroup = sliceTiles * tileRows, units = L::rowGroups * ofGroup,
                       parts = 2 * units <= consumers ? 2 : 1, passes = ceilDiv(units, consumers);
  float2 mine[passes][4];
  __device__ __forceinline__ int unit(int pass) const {
    return (int)threadIdx.x / parts + pass * consumers;
  }
  /// Of a group of eight sequences.
  __device__ __forceinline__ int nearUnit(int pass) const {
    return L::rowGroups == 1 ? unit(pass) : unit(pass) % ofGroup;
  }
  __device__ __forceinline__ int column(int pass) const {
    return nearUnit(pass) / 16 * 16 + nearUnit(pass) % 16 / 2 * 2;
  }
  __device__ __forceinline__ int firstRow(int pass) const {
    return unit(pass) / ofGroup * columnRows + unit(pass) % 2 * 4;
  }
  __device__ __forceinline__ bool inside(int pass) const {
    return unit(pass) < units && column(pass) < place.columns;
  }
  __device__ __forceinline__ int nearColumn(int pass) const {
    return min(column(pass), place.columns - 2);
  }

  __device__ __forceinline__ int batch() const { return shared.step().batch; }
  /// Calls f for those sequences whose keys the block reads, of which `own` is the number.
  template <typename F> __device__ __forceinline__ void ofOwnRows(F &&f) {
    if constexpr (M::ownRows == 1) {
      f(place.ownRow(0));
    } else {
#pragma unroll 1
      for (own = 0; own < M::ownRows; own++)
        f(place.ownRow(own));
    }
  }

  // x
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ void embedRows(const ClusterEmbedRecord<Words> &r, int step) {
#pragma unroll
    for (int p = 0; p < passes; p++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        mine[p][i] = {};
        const int row = firstRow(p) + i;
        if (inside(p))
          mine[p][i] = Base::tokenPair(r, shared.id[row], shared.past[row] + step,
                                       place.rank * L::slice + column(p));
      }
  }
  /// Where a tile of 16 columns of a cluster's partial sums of eight sequences is: 8 bytes of each
  /// lane of the warp that made it, of columns 2 g and the next of sequences 2 t and the next.
  __device__ __forceinline__ char *partialTile(const HalfRecord<Words> &half, int source, int group,
                                               int tile) const {
    return reinterpret_cast<char *>(half.partials.word) + offset +
           (((source * ranks + place.rank) * L::rowGroups + group) * sliceTiles + tile) * 256;
  }
  /// Of what source `source` has published the 16 bytes of a unit, and from there to the next
  /// source of the thread.
  __device__ __forceinline__ const char *piece(const HalfRecord<Words> &half, int source,
                                               int pass) const {
    return partialTile(half, source, 0, 0) + unit(pass) * 16;
  }
  static constexpr int apart = parts * ranks * units * 16;
  static __device__ __forceinline__ void addPiece(float2 (&sum)[4], const unsigned (&word)[4]) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const float2 part = Mma<T>::unpack(word[j]);
      sum[j].x += part.x;
      sum[j].y += part.y;
    }
  }
  /// Adds up what `Sources` clusters of each member have published, of columns and sequences as
  /// mine.
  template <int Sources>
  __device__ __forceinline__ void receiveRowsOfMembers(float2 (&sum)[4], int pass,
                                                       const HalfRecord<Words> &half) {
    constexpr int all = C::Members * Sources, each = ceilDiv(all, parts),
                  together = each < 8 ? each : 8;
#pragma unroll 1
    for (int begin = 0; begin < each; begin += together) {
      const int first = (int)threadIdx.x % parts + begin * parts;
      const char *const from = piece(half, first, pass);
      WordPair v[1][together];
#pragma unroll
      for (int i = 0; i < together; i++)
        v[0][i] = {this->missing(), this->missing()};
      this->await(
          v, [&](int, int i) { return from + i * apart; },
          [&](int, int i) { return inside(pass) && begin + i < each && first + i * parts < all; },
          [&](int, int i) { return (first + i * parts) / Sources; });
#pragma unroll
      for (int i = 0; i < together; i++)
        addPiece(sum, {(unsigned)v[0][i].first & ~1u, (unsigned)(v[0][i].first >> 32),
                       (unsigned)v[0][i].second & ~1u, (unsigned)(v[0][i].second >> 32)});
    }
  }
  /// The same of `sources` clusters, at most Most.
  template <int Most>
  __device__ __forceinline__ void receiveUnit(float2 (&sum)[4], int pass,
                                              const HalfRecord<Words> &half, int sources) const {
    constexpr int each = ceilDiv(Most, parts), together = least(each, 16);
#pragma unroll
    for (int begin = 0; begin < each; begin += together) {
      const int first = (int)threadIdx.x % parts + begin * parts;
      const char *const from = piece(half, first, pass);
      uint4 v[1][together] = {};
      persistent::receivePieces(
          v, [&](int, int i) { return from + i * apart; },
          [&](int, int i) {
            return inside(pass) && begin + i < each && first + i * parts < sources;
          });
#pragma unroll
      for (int i = 0; i < together; i++)
        addPiece(sum, {v[0][i].x, v[0][i].y, v[0][i].z, v[0][i].w});
    }
  }
  /// Adds what `sources` clusters, at most Most, have published behind a half to x.
  template <int Most>
  __device__ __forceinline__ void receiveRows(const HalfRecord<Words> &half, int sources) {
#pragma unroll
    for (int p = 0; p < passes; p++) {
      const int c = place.rank * L::slice + nearColumn(p);
      const float2 bias = C::Bias ? persistent::loadEarly(half.bias + c) : float2{},
                   scale = L::rowScales ? persistent::loadEarly(half.scales + c) : float2{};
      float2 sum[4] = {};
      if constexpr (C::Members > 1)
        receiveRowsOfMembers<Most>(sum, p, half);
      else
        receiveUnit<Most>(sum, p, half, sources);
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
        mine[p][j].x += sum[j].x + bias.x;
        mine[p][j].y += sum[j].y + bias.y;
      }
    }
    if constexpr (C::Members > 1)
      this->round++;
  }
  /// What a norm's gain is of the thread's columns.
  struct Gains {
    float2 of[passes];
  };
  template <bool Gained>
  __device__ __forceinline__ Gains rowGains(const FirstProduct<Words> &product) const {
    Gains gains;
#pragma unroll
    for (int p = 0; p < passes; p++) {
      gains.of[p] = {1.0f, 1.0f};
      if constexpr (Gained)
        gains.of[p] = Mma<T>::unpack(*reinterpret_cast<const unsigned *>(
            product.gain.template as<const T>() + place.rank * L::slice + nearColumn(p)));
    }
    return gains;
  }
  /// Leaves the slice in shared memory.
  __device__ __forceinline__ void storeRows(const Gains &gains) {
#pragma unroll
    for (int p = 0; p < passes; p++) {
      if (!inside(p) || threadIdx.x % parts != 0)
        continue;
      const float2 gain = gains.of[p];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int row = firstRow(p) + i;
        *reinterpret_cast<float2 *>(&shared.plain[row][column(p)]) = mine[p][i];
        *reinterpret_cast<unsigned *>(&shared.x[row][column(p)]) =
            Mma<T>::pack(mine[p][i].x * gain.x, mine[p][i].y * gain.y);
      }
    }
  }
  /// Of the slice of sequence g of a group, by one warp; as sendStatistics().
  __device__ __forceinline__ float2 rowStatistics(NormKind norm, int group) const {
    const float *const from = shared.plain[group * columnRows + g];
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
  /// Those of a sequence to a block.
  __device__ __forceinline__ void sendStatistics(float2 v, const float2 *to, int block,
                                                 Arrival at) const {
    send(remote(sharedAddress(to + place.rank), block), v.x, v.y,
         remote(shared.arrived[at].address(), block));
  }
  /// Those of the cluster's sequences to the blocks that attend for them.
  __device__ __forceinline__ void sendHeadStatistics() const {
#pragma unroll 1
    for (int q = 0; q < M::ownRows; q++) {
      const float2 v = rowStatistics(C::Norm, place.firstRow() / columnRows + q);
      if constexpr (L::keyParts == 1) {
        if (t == 0)
          sendStatistics(v, shared.head.statistics[q], g, AtHead);
      } else {
        const int row = g - place.firstRow() % columnRows; // of the cluster's
        if (row >= 0 && row < L::rowsEach && t < L::keyParts)
          sendStatistics(v, shared.head.statistics[q], row * L::keyParts + t, AtHead);
      }
    }
  }
  /// Those of all sequences, to their blocks and to all.
  __device__ __forceinline__ void sendMlpStatistics() const {
#pragma unroll 1
    for (int q = 0; q < L::rowGroups; q++) {
      const float2 v = rowStatistics(C::Norm, q);
      if (t == 0)
        sendStatistics(v, shared.mlp.statistics[q], g, AtMlp);
    }
  }
  __device__ __forceinline__ void sendWholeStatistics() const {
#pragma unroll 1
    for (int q = 0; q < L::rowGroups; q++) {
      const float2 v = rowStatistics(C::FinalNorm, q);
#pragma unroll
      for (int block = t; block < ranks; block += 4)
        sendStatistics(v, shared.whole.statistics[q * columnRows + g], block, AtWhole);
    }
  }

  // Products
  // -----------------------------------------------------------------------------------------------

  /// Rows 2 g (0, 1) and 2 g + 1 (2, 3) of a tile with sequences 2 t (0, 2) and 2 t + 1 (1, 3) of
  /// group q of `Groups`.
  template <int Groups = 1>
  static __device__ __forceinline__ float total(const TileSum &sum, int q, int i) {
    return Groups == 1 ? sum[0][i] + sum[1][i] + (sum[2][i] + sum[3][i])
                       : sum[2 * q][i] + sum[2 * q + 1][i];
  }
  /// Row `row` of an operand from a column on, and the rows eight behind it.
  template <int Groups, int Rows, int Pitch>
  __device__ __forceinline__ auto rowsIn(const T (&x)[Rows][Pitch], int row, int column) const {
    return typename Base::template StoredVector<Groups, columnRows * Pitch *(int)sizeof(T) / 16>{
        reinterpret_cast<const uint4 *>(&x[row][column]), t};
  }
  /// Two sums of the block's slice to a block.
  template <typename Sums>
  __device__ __forceinline__ void sendSums(Sums &sums, int q, int row, float low, float high,
                                           int block, Arrival at) const {
    send(remote(sharedAddress(&sums.sum[q][place.rank][row]), block), low, high,
         remote(shared.arrived[at].address(), block));
  }
  /// The slices of x of Groups groups of sequences from `first` on, times the cluster's rows: sums
  /// of sequence n of a group to block n.
  template <typename P, int Groups, typename Sums>
  __device__ __forceinline__ void firstOfRows(Sums &sums, int first, Arrival at, int tiles) {
    Base::template multiply<P>(
        tiles,
        [&](int chunk) {
          return rowsIn<Groups>(shared.x, first * columnRows + g, chunk * P::columns);
        },
        [&](int row, const TileSum &sum) {
#pragma unroll
          for (int q = 0; q < Groups; q++)
#pragma unroll
            for (int i = 0; i < 2; i++)
              sendSums(sums, q, row, total<Groups>(sum, q, i), total<Groups>(sum, q, 2 + i),
                       2 * t + i, at);
        });
    advance(ceilDiv(tiles, P::each) * P::chunks);
  }
  __device__ __forceinline__ void firstOfMlp() {
    firstOfRows<typename L::Hidden, L::rowGroups>(shared.mlp, 0, AtMlp, place.hiddenTiles);
  }
  /// Of the cluster's sequences; those of each to all blocks that share its keys.
  __device__ __forceinline__ void firstOfHeads() {
    using P = typename L::Head;
    const int group = place.firstRow() / columnRows;
    if constexpr (L::keyParts == 1) {
      firstOfRows<P, M::ownRows>(shared.head, group, AtHead, P::tiles);
    } else {
      Base::template multiply<P>(
          P::tiles,
          [&](int chunk) {
            return rowsIn<1>(shared.x, group * columnRows + g, chunk * P::columns);
          },
          [&](int row, const TileSum &sum) {
            // Blocks 2 t and 2 t + 1 have the same sequence.
            const int sequence = place.firstRow() % columnRows + 2 * t / L::keyParts,
                      from = g * 4 + sequence / 2;
            float of[2][2]; // of an even and an odd one, rows 2 g and 2 g + 1
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
              for (int j = 0; j < 2; j++)
                of[i][j] = __shfl_sync(fullWarp, total(sum, 0, 2 * j + i), from);
            const bool odd = sequence % 2;
#pragma unroll
            for (int i = 0; i < 2; i++)
              sendSums(shared.head, 0, row, odd ? of[1][0] : of[0][0], odd ? of[1][1] : of[0][1],
                       2 * t + i, AtHead);
          });
      advance(P::slots);
    }
  }
  /// Rows of the block's slice times what the cluster has of Groups groups of sequences from
  /// `group` on, as partial sums of source `source`: those of sequences 2 t and the next where
  /// `publishes`.
  template <typename P, int Groups, typename X>
  __device__ __forceinline__ void secondOfRows(const HalfRecord<Words> &half, int source, int group,
                                               bool publishes, X &&x) {
    Base::template multiply<P>(P::tiles, x, [&](int row, const TileSum &sum) {
      if (row >= place.columns || !publishes)
        return;
#pragma unroll
      for (int q = 0; q < Groups; q++) {
        char *const to = partialTile(half, source, group + q, row / tileRows) + lane * 8;
        float2 of[2]; // two columns of an even sequence and of an odd one
#pragma unroll
        for (int i = 0; i < 2; i++)
          of[i] = {total<Groups>(sum, q, i), total<Groups>(sum, q, 2 + i)};
        if constexpr (C::Members > 1)
          this->publish(shared.peers, to,
                        (u64)Mma<T>::pack(of[1].x, of[1].y) << 32 |
                            (Mma<T>::pack(of[0].x, of[0].y) & ~1u) | this->bit);
        else
          persistent::contributePair(to,
                                     (u64)word(of[1].x, of[1].y) << 32 | word(of[0].x, of[0].y));
      }
    });
    advance(P::slots);
  }
  /// What attention is of the cluster's heads, as partial sums of the output projection.
  __device__ __forceinline__ void projectionOfRows(const HalfRecord<Words> &half) {
    using P = typename L::Projection;
    constexpr bool all = L::rowsEach % columnRows == 0;
    const int begin = place.firstRow() % columnRows,
              row = all ? g : min(max(g - begin, 0), L::rowsEach - 1) * L::keyParts;
    const int source = sourceOf(L::headGroups, place.headGroup);
    secondOfRows<P, M::ownRows>(
        half, source, place.firstRow() / columnRows,
        all || (2 * t >= begin && 2 * t < begin + L::rowsEach),
        [&](int chunk) { return rowsIn<M::ownRows>(shared.attended, row, chunk * P::columns); });
  }
  /// Of all members' sources.
  __device__ __forceinline__ int sourceOf(int sources, int source) const {
    if constexpr (C::Members > 1)
      return this->member * sources + source;
    else
      return source;
  }
  /// A word of a channel: two columns.
  static __device__ __forceinline__ unsigned word(float a, float b) {
    const unsigned bits = Mma<T>::pack(a, b);
    return bits == 0 ? 0x80000000u : bits;
  }
  /// Vectors of 16 bytes of one of the block's sequences to all blocks: each of four lanes has a
  /// word. to: 0 where they have none.
  __device__ __forceinline__ void sendWords(unsigned word, unsigned to, Arrival at) const {
    uint4 v;
    v.x = __shfl_sync(fullWarp, word, g * 4);
    v.y = __shfl_sync(fullWarp, word, g * 4 + 1);
    v.z = __shfl_sync(fullWarp, word, g * 4 + 2);
    v.w = __shfl_sync(fullWarp, word, g * 4 + 3);
    if (to != 0)
#pragma unroll
      for (int block = t; block < ranks; block += 4)
        send(remote(to, block), v, remote(shared.arrived[at].address(), block));
  }
  /// The block's part of an MLP behind `receiveRows` and `storeRows`.
  __device__ __forceinline__ void mlpOfRows(const HalfRecord<Words> &half, const Constants &c) {
    using P = typename L::Output;
    const unsigned pair = threadIdx.x;
    waitArrival(AtMlp, turn);
    Base::note(Mark::mlp_sums_came);
    const bool has = 2 * pair < (unsigned)place.hidden.count;
#pragma unroll
    for (int q = 0; q < L::rowGroups; q++) {
      float2 v = {};
      if (has)
        v = Base::hiddenPair(half, pair, c, q);
      const unsigned to = sharedAddress(&shared.hidden[q * columnRows + place.rank][pair / 4 * 8]);
      sendWords(Mma<T>::pack(v.x, v.y), has ? to : 0, AtHidden);
    }
    Base::note(Mark::hidden_sent);
    waitArrival(AtHidden, turn);
    Base::note(Mark::hidden_came);
    secondOfRows<P, L::rowGroups>(
        half, sourceOf(place.clusters, place.cluster), 0, true,
        [&](int chunk) { return rowsIn<L::rowGroups>(shared.hidden, g, chunk * P::columns); });
    Base::note(Mark::output_published, Mark::output_published_waited);
  }

  /// Whether a thread has one pair of q at most, which does not turn: its constants are loaded
  /// ahead. With a state in pages there are no registers for them.
  static constexpr bool early = C::Rotary == 0 && C::HeadsEach * C::HeadDim / 2 <= consumers &&
                                M::ownRows == 1 && !isPaged<C>;
  __device__ __forceinline__ Constants constantsOfQ(const HeadRecord<Words> &head) const {
    if constexpr (early)
      return constants(head.half.first,
                       place.queryRow(0) + min(2 * (int)threadIdx.x, place.heads * C::HeadDim - 2));
    else
      return {};
  }
  __device__ __forceinline__ void queries(const HeadRecord<Words> &head, const Constants &ofQ);
  __device__ __forceinline__ void newToken(const HeadRecord<Words> &head, int sequence, int past);
  __device__ __forceinline__ void attendToKeys(int keyHead, int first, const RowKeys<C> &keys,
                                               float scale);
  __device__ __forceinline__ void sendAttended();
  __device__ __forceinline__ void mergeAttended();
  __device__ __forceinline__ void attentionOfRows(const HeadRecord<Words> &head, int step,
                                                  const Constants &ofQ);
  __device__ __forceinline__ void vocabularyOfRows(const VocabularyRecord<Words> &record, int step);
  __device__ __forceinline__ void chooseRows(const StepRecord<Words> &step, unsigned third);
  __device__ __forceinline__ void chooseRowsOfMembers(const StepRecord<Words> &step, unsigned use);
  __device__ __forceinline__ void compute(int steps);
  __device__ __forceinline__ void help(int steps);
};
#endif
} // namespace gpt2c::shares

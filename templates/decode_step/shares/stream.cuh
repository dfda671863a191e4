// The warps that fill the ring of shares/shares.cuh.
#pragma once

#include "templates/decode_step/common/ring.h"
#include "templates/decode_step/shares/block.cuh"

namespace gpt2c::shares {
#if __CUDA_ARCH__ >= 900

/// The element at which a row begins, if it exists; else nothing is read there.
struct RowAt {
  bool exists;
  i64 at;
};

/// Slots in turn, by copies of 16 bytes: rows of a slice are too short for TMA.
template <typename C> struct Stream : Marker<C> {
  using L = Layout<C>;
  using T = typename C::T;
  using W = typename C::W;
  /// Whether the ring may hold keys of a step before the step before has stored its last one: else
  /// each slot has had a piece of the vocabulary meanwhile.
  static constexpr bool waits =
      C::Vocab / tileRows / (C::Clusters * C::Ranks) * C::LastChunks < C::Slots;

  SharedOf<C> &shared;
  const Place<C> place;
  const int lane = threadIdx.x % 32;
  /// Of the warp among loaders: alike in all of its lanes, which the compiler has to see, so that
  /// slots and barriers are computed once for a warp.
  const int mine = __shfl_sync(fullWarp, (int)threadIdx.x / 32 - warps - helpers, 0);
  int slot = mine, until = mine; ///< the warp's next, and how many others fill before it
  unsigned lap = 0;
  u64 policy = 0;
  int layer = 0; ///< that marks are of
  static_assert(C::Slots >= loaders);

  /// Zeros where `valid` is false.
  __device__ __forceinline__ void copy(unsigned to, const void *from, bool valid) const {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to),
                 "l"(from), "r"(valid ? 16 : 0), "l"(policy)
                 : "memory");
  }
  __device__ __forceinline__ void copyWord(unsigned to, const void *from, bool valid) const {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
                 "r"(valid ? 4 : 0)
                 : "memory");
  }
  /// The slots of `tiles` tiles of P: row(i) is where row i begins, of which the first `width`
  /// columns exist. A few rows at a time, 128 bytes of each where no lane is idle, else 64.
  /// `scales`: of elements of P in groups, or the words of packed ones.
  template <typename P, typename Row>
  __device__ __forceinline__ void fill(const void *from, int tiles, int width, Row &&row,
                                       const float *scales = nullptr) {
    fillSlots(ceilDiv(tiles, P::each) * P::chunks, [&](int i) {
      const int tile = P::chunks > 1 ? i / P::chunks : i * P::each,
                column = P::chunks > 1 ? i % P::chunks * P::columns : 0,
                columns = min(P::columns, width - column);
      if constexpr (P::step > 0)
        fillGroups<P>(from, scales, tile, column, columns, row);
      else
        fillSlot<P>(from, tile, column, columns, row);
      if constexpr (P::packed)
        fillWords<P>(scales, tile, column, columns, row);
    });
  }
  /// Those of the next `slots` slots that are the warp's, i-th by fillIt(i), once they are free.
  template <typename Fill> __device__ __forceinline__ void fillSlots(int slots, Fill &&fillIt) {
#pragma unroll 1
    while (until < slots) {
      this->timed([&] { persistent::barrierWait(shared.empty[slot], lap ^ 1); });
      __syncwarp();
      fillIt(until);
      shared.full[slot].arriveBehindCopies();
      advance();
    }
    until -= slots;
  }
  /// A slot is always the same warp's, see persistent::slotsUntil.
  __device__ __forceinline__ void advance() {
    const bool wraps = slot + loaders >= C::Slots;
    until += wraps ? C::Slots - slot + mine : loaders;
    slot = wraps ? mine : slot + loaders;
    lap ^= wraps ? 1 : 0;
  }
  /// Tiles from `tile` on, `columns` columns of them from `column` on. Instructions of these warps
  /// are what binds narrow layers, so a tile whose rows follow each other has one address.
  template <typename P, typename Row>
  __device__ __forceinline__ void fillSlot(const void *from, int tile, int column, int columns,
                                           Row &&row) const {
    constexpr int pieces = bytesOf(P::stored, P::bits) / 16, ofRow = pieces % 8 == 0 ? 8 : 4,
                  rows = 32 / ofRow;
    const int first = lane % ofRow, mine = lane / ofRow;
    const unsigned to = sharedAddress(shared.ring[slot]) + mine * P::pitch + first * 16;
    int ahead = 0, elements = columns; // of packed ones from the first block on, in whole blocks
    if constexpr (P::packed) {
      ahead = (int)((unsigned)(row(tile * tileRows).at + column) % packedBlock);
      elements = columns > 0 ? roundUp(ahead + columns, packedBlock) : 0;
    }
    const int count = bytesOf(elements, P::bits) - first * 16;
#pragma unroll
    for (int e = 0; e < P::each; e++) {
      const int begin = (tile + e) * tileRows;
      const bool evenRowsFirst = P::evenRowsFirst(e);
      const RowAt tileAt = row(begin);
      const i64 at = P::follow ? tileAt.at + (evenRowsFirst ? 2 : 1) * mine * P::k : 0;
#pragma unroll
      for (int r = 0; r < tileRows; r += rows) {
        const RowAt of = P::follow && P::alike ? tileAt : row(begin + r + mine);
        const i64 element = P::follow ? at + (evenRowsFirst ? evenFirst(r) : r) * P::k : of.at;
        const char *const source =
            (const char *)from + (element + column - ahead) * P::bits / 8 + first * 16;
#pragma unroll
        for (int i = 0; i < pieces; i += ofRow)
          if (i + ofRow <= pieces || i + first < pieces)
            copy(to + e * P::tileBytes + r * P::pitch + i * 16, source + i * 16,
                 of.exists && i * 16 < count);
      }
    }
  }
  /// The words of groups behind rows of packed weights, from the one that `column` is in on.
  template <typename P, typename Row>
  __device__ __forceinline__ void fillWords(const float *words, int tile, int column, int columns,
                                            Row &&row) const {
    const int r = lane % tileRows, first = lane / tileRows;
    unsigned to =
        sharedAddress(shared.ring[slot]) + r * P::pitch + bytesOf(P::stored, P::bits) + first * 4;
    const float *const own = words + first + (P::follow ? r * (P::k / P::group) : 0);
    // Rows begin at a group each.
    const int end = (int)((unsigned)(row(tile * tileRows).at + column) % P::group) + columns;
#pragma unroll
    for (int e = 0; e < P::each; e++, to += P::tileBytes) {
      const int begin = (tile + e) * tileRows;
      const RowAt tileAt = row(begin), of = P::follow && P::alike ? tileAt : row(begin + r);
      const float *const source = own + (u64)((P::follow ? tileAt.at : of.at) + column) / P::group;
#pragma unroll
      for (int i = 0; i < P::words; i += 2)
        if (i + 2 <= P::words || first == 0)
          copyWord(to + i * 4, source + i, of.exists && (i + first) * P::group < end);
    }
  }
  /// The same of weights in groups, of which the even rows of a tile come first, and scales behind
  /// each. Short rows: all of a tile at once. Rows follow each other where tiles of the layers are
  /// whole.
  template <typename P, typename Row>
  __device__ __forceinline__ void fillGroups(const void *from, const float *scales, int tile,
                                             int column, int columns, Row &&row) const {
    constexpr int ofRow = 32 / tileRows, vector = 128 / P::bits, pieces = P::padded / vector;
    constexpr bool follow = !P::isLast;
    const int first = lane % ofRow, stored = lane / ofRow, r = evenFirst(stored);
#pragma unroll
    for (int e = 0; e < P::each; e++) {
      const RowAt begin = row((tile + e) * tileRows + (follow ? 0 : r));
      const i64 at = begin.at + (follow ? r * P::k : 0) + column;
      const int count = begin.exists ? columns - first * vector : 0;
      const char *const source = (const char *)from + at * P::bits / 8 + first * 16;
      const unsigned to = sharedAddress(shared.ring[slot]) + e * P::tileBytes + stored * P::pitch;
#pragma unroll
      for (int i = 0; i < pieces; i += ofRow)
        if (i + ofRow <= pieces || i + first < pieces)
          copy(to + (i + first) * 16, source + i * 16, i * vector < count);
      const unsigned step = (unsigned)(at / P::step) + first;
      const int steps = begin.exists ? columns / P::step - first : 0;
#pragma unroll
      for (int i = 0; i < P::words; i += ofRow)
        if (i + ofRow <= P::words || i + first < P::words)
          copyWord(to + bytesOf(P::padded, P::bits) + (i + first) * 4,
                   scales + (step + i) / (P::group / P::step), i < steps);
    }
  }

  /// Whether clusters without heads do: not of several sequences where a layer has laps of the
  /// ring, whose weights never come too early.
  static constexpr bool waitsForX = C::Rows == 1 || L::Hidden::slots < 2 * C::Slots;
  /// Until the block has x of a layer: see Step::noteReceived().
  __device__ __forceinline__ void waitReceived(int step, int layer) const {
    if constexpr (!waitsForX)
      return;
    const unsigned n = step * SharedOf<C>::layers + layer;
    Patience patience;
    while (shared.received <= n) {
      patience.spend();
      __nanosleep(32);
    }
    __syncwarp();
  }
  /// The end of what the warp fills for a product, and how long it waited for slots.
  __device__ __forceinline__ void note(Mark m, Mark waited) const {
    this->mark(layer, m);
    this->markWaited(layer, waited);
  }
  /// first: keys come behind the choice of the step before, whose `parity` that is.
  __device__ __forceinline__ void head(const HeadRecord<Words> &of, int past, bool first,
                                       unsigned parity);
  __device__ __forceinline__ void mlp(const HalfRecord<Words> &of);
  __device__ __forceinline__ void vocabulary(const VocabularyRecord<Words> &of);
  __device__ __forceinline__ void run(int steps);
};

template <typename C>
__device__ __forceinline__ void Stream<C>::head(const HeadRecord<Words> &of, int past, bool first,
                                                unsigned parity) {
  using Head = typename L::Head;
  const int slice = place.rank * L::slice;
  fill<Head>(
      of.half.first.weights.template as<const W>(), Head::tiles, place.columns,
      [&](int i) {
        if constexpr (L::grouped) {
          const int row = i < C::HeadsEach * C::HeadDim ? place.queryRow(0) + i : place.keyRow(i);
          return RowAt{i < (C::HeadsEach + 2) * C::HeadDim, (i64)row * C::D + slice};
        } else {
          const int part = i / C::HeadDim, row = place.cluster * C::HeadDim + i % C::HeadDim;
          return RowAt{part < 3, (i64)(part * L::attended + row) * C::D + slice};
        }
      },
      of.half.first.scales);
  note(Mark::heads_filled, Mark::heads_filled_waited);
  if (first)
    persistent::barrierWait(shared.chosen, parity);
  const State<C> state(of, 0, place.keyHead, shared.pages);
  Keys<C> k(past, place.rank);
#pragma unroll 1
  for (int i = 0; k.left > 0; i = 1 - i) {
    fill<typename L::Keys>((const T *)state.keys + i * state.toValue, k.tiles(), C::HeadDim,
                           [&](int row) {
                             const int key = k.keyOf(row, place.rank);
                             return RowAt{key < past, key < past ? state.offsetOf(key) : 0};
                           });
    if (i == 1)
      k.next();
  }
  note(Mark::keys_filled, Mark::keys_filled_waited);
  fill<typename L::Projection>(
      of.half.weights.template as<const W>(), L::Projection::tiles, C::HeadsEach * C::HeadDim,
      [&](int i) {
        return RowAt{i < place.columns, (i64)(slice + i) * L::attended + place.queryRow(0)};
      },
      of.half.scales);
  note(Mark::projection_filled, Mark::projection_filled_waited);
}

template <typename C> __device__ __forceinline__ void Stream<C>::mlp(const HalfRecord<Words> &of) {
  const int slice = place.rank * L::slice;
  fill<typename L::Hidden>(
      of.first.weights.template as<const W>(), place.hiddenTiles, place.columns,
      [&](int i) {
        constexpr int each = L::hiddenRows;
        return RowAt{i < each * place.hidden.count,
                     (i64)(each * place.hidden.begin + i) * C::D + slice};
      },
      of.first.scales);
  note(Mark::mlp_filled, Mark::mlp_filled_waited);
  fill<typename L::Output>(
      of.weights.template as<const W>(), L::Output::tiles, place.hidden.count,
      [&](int i) {
        return RowAt{i < place.columns, (i64)(slice + i) * C::Hidden + place.hidden.begin};
      },
      of.scales);
  note(Mark::output_filled, Mark::output_filled_waited);
}

template <typename C>
__device__ __forceinline__ void Stream<C>::vocabulary(const VocabularyRecord<Words> &of) {
  using P = LastChunk<C>;
#pragma unroll 1
  for (int first = blockIdx.x; first * tileRows < C::Vocab; first += P::readers * gridDim.x)
#pragma unroll 1
    for (int i = 0; i < L::Logits::chunks * P::readers; i++) {
      const int column = i / P::readers * P::columns,
                tile = first + i % P::readers * (int)gridDim.x;
      fill<P>(
          of.first.weights.template as<const void>(), 1, C::D - column,
          [&](int i) {
            const int row = tile * tileRows + i;
            return RowAt{i < tileRows && row < C::Vocab, (i64)row * C::D + column};
          },
          of.first.scales);
    }
}

template <typename C> __device__ __forceinline__ void Stream<C>::run(int steps) {
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  const int begin = shared.step().past[0];
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
#pragma unroll 1
    for (layer = 0; layer < Shared<C>::layers; layer++) {
      this->mark(layer, Mark::loader);
      if (place.hasHead)
        head(shared.headOf(layer), begin + step, waits && layer == 0 && step > 0, (step - 1) & 1);
      else
        waitReceived(step, layer);
      mlp(shared.mlpOf(layer));
    }
    this->mark(layer, Mark::loader);
    vocabulary(shared.vocabulary());
    note(Mark::vocabulary_filled, Mark::vocabulary_filled_waited);
  }
}
#endif
} // namespace gpt2c::shares

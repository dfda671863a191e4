// Shared memory of a block of shares/rows.cuh, and the keys that it reads.
#pragma once

#include "templates/decode_step/shares/block.cuh"

namespace gpt2c::shares {

/// What is in shared memory for several sequences. Those whose keys this block reads are
/// Place::ownRow(0 ..); of the MLP it has rank and, of two groups, rank + ranks.
template <typename C> struct RowsShared {
  using L = Layout<C>;
  using T = typename C::T;
  using Base = Shared<C>;
  static constexpr int rows = C::Rows, group = C::HeadsEach / C::KeysEach, ownRows = L::ownRows,
                       ownHeads = ownRows * C::HeadsEach; ///< of all of the block's sequences
  static constexpr int xPitch = rowPitch(L::Head::operand),
                       hiddenPitch = rowPitch(L::Output::operand),
                       attendedPitch = rowPitch(L::Projection::operand),
                       wholePitch = rowPitch(L::Logits::operand),
                       plainPitchOf = plainPitch(L::slice);
  static_assert(C::Ranks == columnRows && rows % columnRows == 0 && rows <= mostRows);
  static_assert(C::HeadsEach % C::KeysEach == 0 && group <= 8);
  // A word of 8 bytes of partial sums has two sequences.
  static_assert(rows % C::RowParts == 0 && L::rowsEach >= 2 && L::rowsEach * L::keyParts >= 8);
  static_assert(C::HeadDim % tileRows == 0 && C::HeadDim <= 128);

  alignas(128) char ring[C::Slots][C::SlotBytes];
  alignas(16) Record records[C::Records];
  /// Sums of the block's sequences.
  struct Head : Base::template Sums<L::Head::tiles * tileRows, ownRows> {
    /// Parts of attention of the warps; of the new token.
    alignas(16) float out[warps][ownHeads][C::HeadDim];
    float2 softmax[warps][ownHeads];
    alignas(16) float newValue[ownRows * C::KeysEach][C::HeadDim];
    float newScore[ownHeads];
  };
  struct Whole {
    alignas(16) T x[rows][wholePitch];
    float2 statistics[rows][C::Ranks];
  };
  /// Who sends what is in one has had what this block sent when it had read the others.
  union {
    Head head;
    typename Base::template Sums<L::Hidden::tiles * tileRows, L::rowGroups> mlp;
    Whole whole;
  };
  alignas(16) T x[rows][xPitch]; ///< with the gain
  alignas(16) T hidden[rows][hiddenPitch];
  /// What the blocks make of attention; where several share a sequence's keys, the maximum of
  /// scores in base 2 and their sum beside it.
  alignas(16) T attended[ownRows * C::Ranks][attendedPitch];
  float2 partSoftmax[L::keyParts > 1 ? C::Ranks : 1][C::HeadsEach];
  alignas(16) float plain[rows][plainPitchOf]; ///< x without the gain
  alignas(16) T q[ownHeads][L::Keys::padded];
  u64 best[rows][warps];
  Barrier full[C::Slots], empty[C::Slots];
  Barrier arrived[Arrivals];
  Barrier chosen;             ///< the step's tokens have been
  volatile unsigned received; ///< layers since the launch that a cluster without heads has x of
  int id[rows], past[rows];
  int pages[ownRows][isPaged<C> ? C::PageColumns : 1]; ///< of the block's sequences
  alignas(16) float2 angle[C::Rotary > 0 ? ownRows *C::Rotary : 1];
  Peers<C::Members> peers;

  static constexpr int layers = (C::Records - 3) / 2;
  __device__ __forceinline__ const ClusterEmbedRecord<Words> &embedding() const {
    return records[0].template as<ClusterEmbedRecord>();
  }
  __device__ __forceinline__ const HeadRecord<Words> &headOf(int layer) const {
    return records[1 + 2 * layer].template as<HeadRecord>();
  }
  __device__ __forceinline__ const HalfRecord<Words> &mlpOf(int layer) const {
    return records[2 + 2 * layer].template as<HalfRecord>();
  }
  __device__ __forceinline__ const VocabularyRecord<Words> &vocabulary() const {
    return records[C::Records - 2].template as<VocabularyRecord>();
  }
  __device__ __forceinline__ const StepRecord<Words> &step() const {
    return records[C::Records - 1].template as<StepRecord>();
  }
};

/// Keys of a sequence that the block reads: a slot has some tiles of keys of a head, each with that
/// of their values behind it. Of a tile of values the even rows come first.
template <typename C> struct KeyPairs {
  using P = typename Layout<C>::Keys;
  static constexpr int bits = 16, chunks = 1, columns = P::columns, padded = P::padded, words = 0,
                       pitch = P::pitch, tileBytes = P::tileBytes, step = 0;
  static constexpr int pairs = C::SlotBytes / (2 * tileBytes), each = 2 * pairs; ///< of a slot
  static constexpr int readers = slotWarps(C::Slots);                            ///< warps
  static_assert(pairs > 0);
};
/// Those of a sequence of `past` keys: of its tiles every keyParts-th, from `part` on.
template <typename C> struct RowKeys {
  static constexpr int parts = Layout<C>::keyParts;
  int past, part, tiles, slots;
  __device__ __forceinline__ RowKeys(int past, int part) : past(past), part(part) {
    const int all = ceilDiv(past, tileRows);
    tiles = all > part ? (all - part - 1) / parts + 1 : 0;
    slots = ceilDiv(tiles, KeyPairs<C>::pairs);
  }
  /// The position of a tile's first key.
  __device__ __forceinline__ int positionOf(int tile) const {
    return (part + tile * parts) * tileRows;
  }
  /// Whether the key behind them all belongs to the part, which reads it in later steps.
  static __device__ __forceinline__ bool appends(int past, int part) {
    return past / tileRows % parts == part;
  }
};

} // namespace gpt2c::shares

// What a block of shares/shares.cuh has: its part of everything, shared memory, its keys.
#pragma once

#include "templates/attention/kv_append/kv_append.cuh"
#include "templates/decode_step/common/barrier.cuh"
#include "templates/decode_step/common/config.cuh"
#include "templates/decode_step/common/exchange.cuh"
#include "templates/decode_step/common/record.cuh"
#include "templates/decode_step/common/ring.cuh"
#include "templates/decode_step/shares/marks.cuh"
#include "templates/decode_step/shares/members.cuh"
#include "templates/decode_step/shares/shares.h"
#include "templates/device/int8.cuh"
#include "templates/device/tma.cuh"
#include "templates/device/wgmma.cuh"

namespace gpt2c::shares {

using persistent::ClusterEmbedRecord, persistent::FirstProduct, persistent::HalfRecord,
    persistent::HeadRecord, persistent::StepRecord, persistent::VocabularyRecord;
using persistent::Patience;
using persistent::Record;
using persistent::Words;

constexpr float leastScore = -1e30f;
/// Row i of a tile whose even rows come first.
__device__ __forceinline__ int evenFirst(int i) { return i < 8 ? 2 * i : 2 * i - 15; }

/// The division of shares.h, as constants.
template <typename C> struct Layout {
  static constexpr Division division = {
      C::D,
      C::Heads,
      C::HeadDim,
      C::Hidden,
      C::Vocab,
      {C::Packed ? packedBits : Operand<typename C::W>::bits, C::WeightGroup},
      {C::PackedLast ? packedBits : Operand<typename C::Last>::bits, C::LastGroup},
      C::KeyHeads,
      C::Rotary,
      C::Gated,
      C::HeadsEach,
      C::Ranks,
      C::Clusters,
      C::LeastClusters,
      C::FirstChunks,
      C::ProjectionChunks,
      C::OutputChunks,
      C::LastChunks,
      C::SlotBytes,
      C::Slots,
      C::Rows,
      C::KeysEach,
      C::RowParts,
      C::BusyShare,
      C::PageColumns,
      C::Members};
  /// K: elements of a whole row.
  template <Product Products::*Which, int K, typename Element = typename C::W,
            int Group = C::WeightGroup>
  struct Of {
    using Weight = Element;
    static constexpr Product of = productsOf(division).*Which;
    static constexpr bool isLast = Which == &Products::logits; ///< of the vocabulary
    /// Whether columns of its weights are those of x, or a half's second product has it.
    static constexpr bool isFirst = Which == &Products::head || Which == &Products::hidden,
                          isOfHead = Which == &Products::head || Which == &Products::projection;
    /// Whether the rows of a tile follow each other, and in which order they lie in a slot.
    static constexpr bool follow = Which != &Products::head || C::HeadDim % tileRows == 0;
    static constexpr __device__ bool evenRowsFirst(int) { return false; }
    static constexpr bool packed = of.bits == packedBits;
    static constexpr int k = K, group = packed ? commonDivisor(packedGroup, K) : Group;
    /// Whether all rows of a tile exist, or none.
    static constexpr bool alike = Which == &Products::head     ? C::HeadDim % tileRows == 0
                                  : Which == &Products::hidden ? C::Gated
                                  : isLast                     ? C::Vocab % tileRows == 0
                                  : Which == &Products::keys
                                      ? false
                                      : C::D % tileRows == 0 && division.slice() % tileRows == 0;
    static constexpr int rows = of.rows, chunks = of.chunks, columns = of.columns, bits = of.bits,
                         padded = of.padded, stored = of.stored, step = of.step, words = of.words,
                         pitch = of.pitch, tileBytes = of.tileBytes, tiles = of.tiles,
                         each = of.each, slots = of.slots, operand = operandColumns(of);
    static_assert(each * tileBytes <= C::SlotBytes &&
                  bits == (packed ? packedBits : Operand<Element>::bits));
    static_assert(!packed || k % packedBlock == 0);
  };
  using Head = Of<&Products::head, C::D>;
  using Projection = Of<&Products::projection, C::Heads * C::HeadDim>;
  using Hidden = Of<&Products::hidden, C::D>;
  using Output = Of<&Products::output, C::Hidden>;
  using Keys = Of<&Products::keys, C::HeadDim, typename C::T, 0>;
  using Logits = Of<&Products::logits, C::D, typename C::Last, C::LastGroup>;
  static constexpr int slice = division.slice();
  static constexpr bool grouped = division.grouped();
  static constexpr int busy = division.busy(), headGroups = division.headGroups();
  static constexpr int rowsEach = division.rowsEach(), keyParts = division.keyParts(),
                       ownRows = division.ownRows(), rowGroups = division.rowGroups();
  /// Columns of what attention makes of all heads: of any width beside that of x.
  static constexpr int attended = C::Heads * C::HeadDim;
  /// Rows of a first product for each hidden column.
  static constexpr int hiddenRows = C::Gated ? 2 : 1;
  /// Warps of each head of a cluster: those whose number leaves it as rest.
  static constexpr int headWarps = warps / C::HeadsEach;
  /// Tiles of a product between which warps meet: as many as the ring holds, so that none waits for
  /// a slot that another has yet to read. 0: of one that does not lap the ring, or whose slots are
  /// always the same warp's.
  template <typename P>
  static constexpr int meeting =
      (grouped || C::Gated || C::Rows > 1) && P::slots > C::Slots ? C::Slots / P::chunks *P::each
                                                                  : 0;
  static constexpr int passes = ceilDiv(slice / 8, warps); ///< of receiving
  /// Pairs of a head's dimensions that a lane has.
  static constexpr int pairs = ceilDiv(C::HeadDim / 2, 32);
  static_assert(C::Slots <= 64);
  static constexpr Storage weights = division.weights;
  /// Whether sums of the layers, and of the vocabulary, are multiplied by a scale for each row.
  static constexpr bool rowScales = Operand<typename C::W>::scaled && C::WeightGroup == 0,
                        lastRowScales = Operand<typename C::Last>::scaled && C::LastGroup == 0;
  static_assert(sizeof(typename C::T) == 2 && (weights.bits >= 8 || C::WeightGroup > 0));
  static_assert(C::D % 8 == 0 && C::Hidden % 8 == 0 && C::HeadDim % 8 == 0);
  static_assert(busy <= C::LeastClusters && C::LeastClusters <= C::Clusters &&
                C::Clusters <= mostSources && C::Ranks <= mostRanks);
  static_assert(C::Heads % C::KeyHeads == 0 && C::HeadsEach <= warps);
  static_assert(C::Rows > 1 || (C::Heads / C::KeyHeads % C::HeadsEach == 0 && C::KeysEach == 1 &&
                                (grouped || C::HeadsEach == 1)));
  static_assert(C::Rotary % 2 == 0 && 2 * C::Rotary <= C::HeadDim && C::Rotary <= warps * 32);
  static_assert(Output::operand / 2 <= warps * 32 && C::Vocab > 0);
  static_assert(C::Members >= 1 && C::Members <= 8 && C::Tokens <= C::Members * C::Vocab);
  // Each reads the sums of as many clusters.
  static_assert(C::Members == 1 || C::Clusters == C::LeastClusters);
};

/// A chunk of a tile of the vocabulary. Chunks of as many tiles as there are readers follow each
/// other, then their next ones: so a slot is always the same warp's.
template <typename C> struct LastChunk {
  using P = typename Layout<C>::Logits;
  using Weight = typename P::Weight;
  static constexpr bool isLast = true, isFirst = false, isOfHead = false, packed = P::packed,
                        follow = P::follow, alike = P::alike;
  static constexpr __device__ bool evenRowsFirst(int) { return false; }
  static constexpr int bits = P::bits, chunks = 1, columns = P::columns, padded = P::padded,
                       stored = P::stored, step = P::step, words = P::words, group = P::group,
                       k = P::k, pitch = P::pitch, tileBytes = P::tileBytes, each = 1;
  static constexpr int readers = slotWarps(C::Slots);
};

template <typename C> constexpr bool isPaged = C::PageColumns > 0;

/// Keys of a head of a sequence, in elements from its key 0 on: of a state in pages,
/// kv[pages,layers,2,KeyHeads,tokens,HeadDim], in the first of them.
template <typename C> struct State {
  using T = typename C::T;
  static constexpr int tokens = persistent::clusterPageTokens, layers = (C::Records - 3) / 2;
  static constexpr i64 headElements = tokens * C::HeadDim,
                       pageElements = i64{layers} * 2 * C::KeyHeads * headElements;
  static_assert(tokens % tileRows == 0);
  T *keys;
  i64 toValue; ///< from a key to its value
  const int *pages;

  /// pages: the numbers of the sequence's.
  __device__ __forceinline__ State(const HeadRecord<Words> &head, int sequence, int keyHead,
                                   const int *pages)
      : pages(pages) {
    T *const state = head.kv.template as<T>();
    if constexpr (isPaged<C>) {
      toValue = C::KeyHeads * headElements;
      keys = state + head.layer * 2 * toValue + keyHead * headElements;
    } else {
      toValue = (i64)head.batchMax * C::KeyHeads * head.context * C::HeadDim;
      keys = state + kvOffset(head.layer, 0, sequence, keyHead, head.batchMax, C::KeyHeads,
                              head.context, C::HeadDim);
    }
  }
  __device__ __forceinline__ i64 offsetOf(int position) const {
    if constexpr (isPaged<C>)
      return pages[position / tokens] * pageElements + position % tokens * C::HeadDim;
    else
      return (i64)position * C::HeadDim;
  }
  /// Whether there is room for a key.
  static __device__ __forceinline__ bool has(const HeadRecord<Words> &head, int position) {
    return position < (isPaged<C> ? C::PageColumns * tokens : (int)head.context);
  }
};
/// Copies the numbers of a sequence's pages.
template <typename C>
__device__ __forceinline__ void loadPages(int *pages, const StepRecord<Words> &step, int sequence) {
  if constexpr (isPaged<C>) {
    const int columns = step.stage.rows;
    const int *const table = step.stage.weights.template as<const int>() + sequence * columns;
    for (int i = threadIdx.x; i < C::PageColumns; i += threads)
      pages[i] = i < columns ? table[i] : 0;
  }
}

/// What is in shared memory.
template <typename C> struct Shared {
  using L = Layout<C>;
  using T = typename C::T;
  alignas(128) char ring[C::Slots][C::SlotBytes];
  alignas(16) Record records[C::Records];
  /// What the blocks sent: sums of first products with the statistics of x.
  template <int Rows, int Sequences = 1> struct Sums {
    float sum[Sequences][C::Ranks][Rows];
    /// Sum, and sum of squared differences from the mean.
    float2 statistics[Sequences][C::Ranks];
  };
  Sums<L::Head::tiles * tileRows> head;
  Sums<L::Hidden::tiles * tileRows> mlp;
  /// Of attention: sums of values and, of scores in base 2, maximum and sum.
  struct Parts {
    float out[C::Ranks][C::HeadsEach * C::HeadDim];
    float2 softmax[C::Ranks * C::HeadsEach];
  } parts;
  struct Whole {
    alignas(16) T x[L::Logits::operand];
    float2 statistics[C::Ranks];
  } whole;
  alignas(16) T x[L::Head::operand]; ///< with the gain
  alignas(16) T hidden[L::Output::operand];
  alignas(16) float plain[L::slice]; ///< x without the gain
  /// Parts of attention of the warps, the last that of the new token.
  alignas(8) float out[warps + 1][C::HeadDim];
  float2 softmax[warps + C::HeadsEach]; ///< the last those of heads with the new token
  u64 best[warps];
  u64 choice[persistent::choosers]; ///< the best of 32 blocks each
  Barrier full[C::Slots], empty[C::Slots];
  Barrier arrived[4];
  Barrier chosen;             ///< the step's token has been
  volatile unsigned received; ///< layers since the launch that a cluster without heads has x of
  int id;
  int pages[isPaged<C> ? C::PageColumns : 1];
  /// Where heads share keys or turn: what attention is, and what pairs turn by, cosine and sine.
  alignas(16) T attended[L::grouped ? L::Projection::operand : 8];
  alignas(16) float2 angle[C::Rotary > 0 ? C::Rotary : 1];
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
/// The same of several sequences: shares/rows_block.cuh.
template <typename C> struct RowsShared;
template <typename C, bool Several> struct SharedFor {
  using Type = Shared<C>;
};
template <typename C> struct SharedFor<C, true> {
  using Type = RowsShared<C>;
};
template <typename C> using SharedOf = typename SharedFor<C, (C::Rows > 1)>::Type;

/// AtHidden: of several sequences alone.
enum Arrival { AtHead, AtMlp, AtParts, AtWhole, AtHidden, Arrivals };

#if __CUDA_ARCH__ >= 900

/// Shared memory at an address in a register: of what the compiler knows of it, it would compute
/// the address anew at each use, out of the block's rank in the cluster.
template <typename M> __device__ __forceinline__ M &placed(void *memory) {
  unsigned at = sharedAddress(memory);
  asm volatile("" : "+r"(at));
  return *reinterpret_cast<M *>(__cvta_shared_to_generic(at));
}

/// Where a block stands, and what of the columns is its own.
template <typename C> struct Place {
  const int cluster = blockIdx.x / C::Ranks, rank = blockIdx.x % C::Ranks;
  /// Columns of x from rank * slice on.
  const int columns = sliceCount(C::D, C::Ranks, rank, Layout<C>::weights);
  const int clusters = gridDim.x / C::Ranks;
  const Range hidden = Layout<C>::division.hiddenOf(clusters, cluster);
  const int hiddenTiles = ceilDiv(Layout<C>::hiddenRows * hidden.count, tileRows);
  const bool hasHead = cluster < Layout<C>::busy;
  /// Which heads the cluster has, and of which part of the sequences.
  const int headGroup = cluster / C::RowParts, rowPart = cluster % C::RowParts;
  /// Of the keys that the cluster's heads share.
  const int keyHead = headGroup * C::HeadsEach / (C::Heads / C::KeyHeads);

  /// Heads of the cluster that exist, and heads of keys.
  const int heads = least(C::HeadsEach, C::Heads - headGroup * C::HeadsEach);
  const int keys = C::KeysEach == 1 ? 1 : least(C::KeysEach, C::KeyHeads - keyHead);

  /// Rows of the weights of q, k and v: the first of a head of the cluster's, and of row i of its
  /// first product behind those of q.
  __device__ __forceinline__ int queryRow(int head) const {
    return (headGroup * C::HeadsEach + head) * C::HeadDim;
  }
  __device__ __forceinline__ int keyRow(int i) const {
    const int behind = i - C::HeadsEach * C::HeadDim;
    return (C::Heads + behind / (C::KeysEach * C::HeadDim) * C::KeyHeads + keyHead +
            behind / C::HeadDim % C::KeysEach) *
               C::HeadDim +
           behind % C::HeadDim;
  }

  /// What the blocks of the cluster send to each other for each kind of arrival.
  __device__ __forceinline__ int bytesOf(int arrival) const {
    using L = Layout<C>;
    constexpr int ofHeads = C::HeadsEach * C::HeadDim;
    if (arrival == AtWhole)
      return C::Rows * (C::D * 2 + C::Ranks * 8);
    if (arrival == AtHidden)
      return C::Rows * 2 * hidden.count;
    if (C::Rows > 1 && arrival == AtParts)
      return C::Ranks * (L::ownRows * 2 * ofHeads + (L::keyParts > 1 ? C::HeadsEach * 8 : 0));
    return C::Ranks * 4 *
           (arrival == AtHead  ? L::ownRows * (L::Head::tiles * tileRows + 2)
            : arrival == AtMlp ? L::rowGroups * (hiddenTiles * tileRows + 2)
                               : ofHeads + 2 * C::HeadsEach);
  }

  // Of several sequences

  /// The first that the cluster with heads attends for.
  __device__ __forceinline__ int firstRow() const { return rowPart * Layout<C>::rowsEach; }
  /// Those whose keys the block reads: its i-th, of ownRows; and which of the parts of its keys.
  __device__ __forceinline__ int ownRow(int i) const {
    return firstRow() +
           (Layout<C>::keyParts > 1 ? rank / Layout<C>::keyParts : rank + i * C::Ranks);
  }
  __device__ __forceinline__ int keyPart() const { return rank % Layout<C>::keyParts; }
};

/// The keys of this block: tiles number rank, rank + ranks, .. of those before the new one. They
/// come through the ring in laps of as many as it holds, the tiles of keys of a lap and then those
/// of values; this is one lap of them.
template <typename C> struct Keys {
  static constexpr int lapSlots = C::Slots / 2, lapTiles = lapSlots * Layout<C>::Keys::each;
  static_assert(lapSlots > 0);
  int first = 0; ///< tile of the lap
  int left;      ///< tiles from it on
  bool appends;  ///< the new one, whose tile is this block's
  __device__ __forceinline__ Keys(int past, int rank) {
    const int all = ceilDiv(past, tileRows);
    left = all > rank ? (all - rank - 1) / C::Ranks + 1 : 0;
    appends = past / tileRows % C::Ranks == rank;
  }
  /// Of the lap.
  __device__ __forceinline__ int tiles() const { return min(left, lapTiles); }
  __device__ __forceinline__ int slots() const { return ceilDiv(tiles(), Layout<C>::Keys::each); }
  __device__ __forceinline__ bool isLast() const { return left <= lapTiles; }
  __device__ __forceinline__ void next() {
    first += lapTiles;
    left -= lapTiles;
  }
  /// The position of row `row` of the lap's tiles.
  __device__ __forceinline__ int keyOf(int row, int rank) const {
    return (rank + (first + row / tileRows) * C::Ranks) * tileRows + row % tileRows;
  }
};

/// Memory behind the channels, as in clusters: u64[3][blocks] and the word that counts steps, then
/// the best logit of each block, of three steps, in a copy for each rank or sequence.
__device__ __forceinline__ u64 *blockChoices(const StepRecord<Words> &step, unsigned third) {
  return reinterpret_cast<u64 *>(step.channels + 2 * step.channelBytes) +
         third * persistent::maxBlocks;
}
template <int Copies = persistent::clusterBlocks>
__device__ __forceinline__ u64 *choiceCopy(const StepRecord<Words> &step, unsigned third,
                                           int copy) {
  return blockChoices(step, persistent::clusterChoicesAt) +
         (third * Copies + copy) * persistent::maxBlocks;
}
/// The same of members, of two steps: those of each follow each other.
template <typename C>
__device__ __forceinline__ u64 *memberChoices(const StepRecord<Words> &step, unsigned half,
                                              int copy, int member) {
  return blockChoices(step, persistent::clusterChoicesAt) +
         ((half * persistent::clusterBlocks + copy) * C::Members + member) * persistent::maxBlocks;
}
/// Where the members of a step meet.
template <typename C, typename Shared>
__device__ __forceinline__ tile::Exchange *exchangeOf(const Shared &shared) {
  return shared.vocabulary().exchange.template as<tile::Exchange>();
}
/// Thread m notes where member m has what this one has.
template <typename C, typename Shared> __device__ __forceinline__ void notePeers(Shared &shared) {
  if constexpr (C::Members > 1) {
    const tile::Exchange *const e = exchangeOf<C>(shared);
    const int m = threadIdx.x, own = e->rank;
    if (m < C::Members) {
      shared.peers.workspace[m] = (i64)(e->scratch[m] - e->scratch[own]);
      shared.peers.logits[m] = (i64)(e->logits[m] - e->logits[own]);
    }
  }
}
#endif
} // namespace gpt2c::shares

// What a block of clusters/clusters.cuh has: shared memory, its keys, ways to the other blocks of
// its cluster.
#pragma once

#include "templates/attention/kv_append/kv_append.cuh"
#include "templates/decode_step/common/barrier.cuh"
#include "templates/decode_step/common/config.cuh"
#include "templates/decode_step/common/exchange.cuh"
#include "templates/decode_step/common/record.cuh"
#include "templates/decode_step/common/ring.cuh"
#include "templates/device/int8.cuh"
#include "templates/device/tma.cuh"
#include "templates/device/wgmma.cuh"

namespace gpt2c::clusters {

using persistent::ClusterEmbedRecord, persistent::FirstProduct, persistent::HalfRecord,
    persistent::HeadRecord, persistent::StepRecord, persistent::VocabularyRecord;
using persistent::Patience;
using persistent::Record;
using persistent::Words;

constexpr int ranks = persistent::clusterBlocks, headDim = persistent::clusterHeadDim,
              keyTile = persistent::clusterKeys;
constexpr int readers = 8; ///< warps of the vocabulary
constexpr int digits = 3;  ///< of x, 8 bits each, where the vocabulary is int8

/// So small are the weights that the ring has more than a layer: keys, values and the weights of
/// second products are loaded ahead of the wait for x.
template <typename C>
constexpr bool roomy = sizeof(typename C::T) == 2 && Operand<typename C::W>::scaled;

/// Groups of 8 rows of the vocabulary of this block: number i is group blockIdx.x + i gridDim.x.
template <typename C> __device__ __forceinline__ int groupCount() {
  return ((C::Vocab + 7) / 8 - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
}

/// The records of a step: the embedding; of layer l a HeadRecord, number 1 + 2 l, and the
/// HalfRecord of its MLP; the vocabulary; the step.
template <int Count> struct StepRecords {
  static constexpr int layers = (Count - 3) / 2;
  Record record[Count];

  __device__ __forceinline__ const ClusterEmbedRecord<Words> &embedding() const {
    return record[0].template as<ClusterEmbedRecord>();
  }
  __device__ __forceinline__ const VocabularyRecord<Words> &vocabulary() const {
    return record[Count - 2].template as<VocabularyRecord>();
  }
  __device__ __forceinline__ const StepRecord<Words> &step() const {
    return record[Count - 1].template as<StepRecord>();
  }
};

template <typename C> struct Layout {
  using T = typename C::T;
  using W = typename C::W;
  static constexpr int warps = C::D / headDim; ///< that compute
  /// The helper is between them.
  static constexpr int loader = warps + persistent::clusterHelpers,
                       loaders = persistent::clusterLoaders;
  static constexpr int threads = 32 * (loader + loaders);
  static constexpr int slice = C::D / ranks;         ///< columns of x of a block
  static constexpr int headRows = 3 * headDim;       ///< rows of a cluster's first product
  static constexpr int hidden = 4 * C::D / C::Heads; ///< columns of a cluster
  static constexpr int blocks = C::Heads * ranks;
  static constexpr int slotWeights = 8 * C::D;
  static constexpr int slotBytes = slotWeights * (int)sizeof(W);
  static constexpr int tileBytes = keyTile * headDim * (int)sizeof(T); ///< of keys
  static constexpr int slotTiles = slotBytes / tileBytes;
  static constexpr int headSlots = headRows / 64, hiddenSlots = hidden / 64;
  static constexpr int projectionSlots = slice * headDim / slotWeights,
                       outputSlots = slice * hidden / slotWeights;
  /// Of a block's part of attention: rows of fp16 are read by eight lanes at once.
  static constexpr int partPitch = headDim + (sizeof(T) == 2 ? 8 : 0),
                       partBytes = ranks * (headDim * (int)sizeof(T) + 8);
  /// Of the vocabulary, whose constants stay in shared memory.
  static constexpr int keptGroups = minInt(ceilDiv(ceilDiv(C::Vocab, 8), blocks), 7 * 1024 / 96);
  static constexpr int passes = slice / 4 / (2 * warps); ///< of receiving
  static_assert(passes * 8 == slice / warps && slice % 32 == 0 && hidden % 64 == 0);
  static_assert(projectionSlots * slotWeights == slice * headDim &&
                outputSlots * slotWeights == slice * hidden && slotWeights / hidden % 2 == 0);
  static_assert(warps % 4 == 0 && loader + loaders == warps + 4); // whole warpgroups
  static_assert(headRows / 16 <= warps && C::Heads <= 16 && C::Heads * headDim == C::D);
};

/// The state in pages, kv[pages,layers,2,Heads,tokens,headDim]: a sequence's pages in the order of
/// its tokens, and where a head's keys or values are in one.
template <typename C> struct Pages {
  static constexpr int tokens = persistent::clusterPageTokens;
  static constexpr i64 headElements = tokens * headDim, toValue = C::Heads * headElements;
  static constexpr i64 pageElements = i64{StepRecords<C::Records>::layers} * 2 * toValue;
  static_assert(tokens % keyTile == 0);
  int number[C::PageColumns];

  /// From the first page's key 0 of a head to key `position`.
  __device__ __forceinline__ i64 offsetOf(int position) const {
    return number[position / tokens] * pageElements + position % tokens * headDim;
  }
};
struct NoPages {};
template <typename C, int Columns = C::PageColumns> struct PagesOf {
  using Type = Pages<C>;
};
template <typename C> struct PagesOf<C, 0> {
  using Type = NoPages;
};
template <typename C> constexpr bool isPaged = C::PageColumns > 0;

/// Key 0 of a head in the first page, or of a sequence in a state without pages.
template <typename C>
__device__ __forceinline__ typename C::T *firstKey(const persistent::HeadRecord<Words> &head,
                                                   int sequence, int cluster) {
  auto *const state = head.kv.template as<typename C::T>();
  if constexpr (isPaged<C>)
    return state + head.layer * 2 * Pages<C>::toValue + cluster * Pages<C>::headElements;
  else
    return state + kvOffset(head.layer, 0, sequence, cluster, head.batchMax, C::Heads, head.context,
                            headDim);
}
/// From a key to its value.
template <typename C>
__device__ __forceinline__ i64 toValue(const persistent::HeadRecord<Words> &head) {
  if constexpr (isPaged<C>)
    return Pages<C>::toValue;
  else
    return (i64)head.batchMax * C::Heads * head.context * headDim;
}

/// What is in shared memory.
template <typename C, bool Several = (C::Sequences > 1)> struct Shared {
  using L = Layout<C>;
  using T = typename C::T;
  alignas(128) char ring[C::Slots][L::slotBytes];
  alignas(16) StepRecords<C::Records> records;
  /// What the blocks sent: sums of first products with the statistics of x.
  template <int Rows> struct Sums {
    float sum[ranks][Rows];
    float2 statistics[ranks];
  };
  Sums<L::headRows> head;
  Sums<L::hidden> mlp;
  struct alignas(16) Parts {
    T out[ranks][L::partPitch];
    float2 softmax[ranks]; ///< maximum (base 2) and sum
  } parts;
  struct Whole {
    T x[C::D];
    float2 statistics[ranks];
  } whole;
  uint2 digit[roomy<C> ? C::D / 64 : 1][32];         ///< of x for the vocabulary, operands of mma
  float constants[roomy<C> ? L::keptGroups : 1][24]; ///< of groups of the vocabulary
  alignas(16) T x[L::slice];                         ///< with the gain
  alignas(16) T hidden[L::hidden];
  float plain[L::slice]; ///< x without the gain
  /// Of each tile of keys 2^(score - top), of fp16 in the order of an operand of a product, and
  /// top, or 0 and -1e30; score of the new key.
  alignas(16) T weights[keyTile * L::warps];
  alignas(16) float tops[L::warps];
  float newScore;
  u64 best[L::warps];
  alignas(16) u64 choice[persistent::choosers]; ///< the best of 32 blocks each
  Barrier full[C::Slots], empty[C::Slots];
  Barrier arrived[4];
  Barrier chosen; ///< the step's token has been
  int id;
  typename PagesOf<C>::Type pages;
};
enum Arrival { AtHead, AtMlp, AtParts, AtWhole };

#if __CUDA_ARCH__ >= 900

/// The largest of a warp's values, by their order as integers.
__device__ __forceinline__ float largest(float v) {
  auto ordered = [](int bits) { return bits ^ (bits >> 31 & 0x7fffffff); };
  return __int_as_float(ordered(__reduce_max_sync(fullWarp, ordered(__float_as_int(v)))));
}

/// The sum of a few values by a tree.
template <int N> __device__ __forceinline__ float treeSum(const float (&v)[N]) {
  float sum[N];
#pragma unroll
  for (int i = 0; i < N; i++)
    sum[i] = v[i];
#pragma unroll
  for (int n = N; n > 1; n = (n + 1) / 2)
#pragma unroll
    for (int i = 0; i < n / 2; i++)
      sum[i] += sum[(n + 1) / 2 + i];
  return sum[0];
}

/// Where a vector of 16 bytes of a key's or value's row is in its tile, in vectors: in such an
/// order that eight rows have vectors of one number in different banks.
template <typename T> __device__ __forceinline__ int vectorOfKey(int key, int vector) {
  return key * (headDim / elementsPer16Bytes<T>()) + (vector ^ key % 8);
}

/// Copies the numbers of a sequence's pages.
template <typename C>
__device__ __forceinline__ void loadPages(Pages<C> &pages, const StepRecord<Words> &step,
                                          int sequence) {
  const int columns = step.stage.rows;
  const int *const table = step.stage.weights.template as<const int>() + sequence * columns;
  for (int i = threadIdx.x; i < C::PageColumns; i += Layout<C>::threads)
    pages.number[i] = i < columns ? table[i] : 0;
}

/// The keys of this block: tiles number rank, rank + ranks, ..
template <typename C> struct Keys {
  int tiles, slots, local, row; ///< local: this block's number of the tile that the new key ends
  bool appends;
  __device__ __forceinline__ Keys(int past, int rank) {
    const int last = past / keyTile;
    tiles = last >= rank ? (last - rank) / ranks + 1 : 0;
    slots = ceilDiv(tiles, Layout<C>::slotTiles);
    appends = last % ranks == rank;
    local = last / ranks;
    row = past % keyTile;
  }
};
#endif
} // namespace gpt2c::clusters

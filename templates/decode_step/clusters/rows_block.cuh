// What a block of clusters/batch.cuh has: shared memory, the order of rows in a slot, its
// keys.
#pragma once

#include "templates/decode_step/clusters/stream.cuh"

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
  Barrier full[C::Slots], empty[C::Slots];
  Barrier arrived[6];
  Barrier chosen; ///< the step's tokens have been
  int id[rows], past[rows];
  typename PagesOf<C>::Type pages[isPaged<C> ? groups : 1]; ///< of this block's sequences
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

#endif
} // namespace gpt2c::clusters

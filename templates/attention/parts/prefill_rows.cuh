// Rows of queries, keys and values of a prefill's tile that goes through shared memory.
#pragma once

#include "templates/attention/kv_append/kv_append.cuh"
#include "templates/attention/parts/attention_sizes.cuh"

namespace gpt2c {

/// `Queries` queries of a head from q0 on and the keys they see. X: the type of qkv, of which
/// KvHeads heads are keys; Threads: of the block.
template <typename C, typename X, typename Kv, int KvHeads, int Queries, int Threads>
struct PrefillRows {
  static constexpr int width = C::Heads * C::HeadDim, qkvRow = width + 2 * KvHeads * C::HeadDim;
  static constexpr int each = elementsPer16Bytes<X>(); // that are copied at once
  static constexpr int chunks = C::HeadDim / each;
  static_assert(!C::Append || KvHeads == C::Heads);

  int begin, q0, qEnd, seq, context; // tokens of the state; queries; new tokens; room of the state
  int limit;                         // keys that some query sees
  const X *fresh;                    // the head's part of the first new token
  Kv *keyCache, *valueCache;

  /// Waits for the predecessor.
  __device__ __forceinline__ PrefillRows(const X *qkv, Kv *kv, const int *past,
                                         const AttentionSizes &sizes, int tileQ, int h, i64 b)
      : seq(sizes.seq), context(sizes.context) {
    // What is right before computes qkv, or appends it, and nothing else of this.
    begin = past != nullptr ? past[b] : 0;
    waitForPredecessor();
    q0 = tileQ * Queries;
    qEnd = min(q0 + Queries, seq);
    int total = begin + seq;
    if (!C::Append)
      total = min(total, context);
    limit = C::Causal ? min(begin + qEnd, total) : total;
    const int keyHead = h / (C::Heads / KvHeads);
    fresh = qkv + b * seq * qkvRow + h * C::HeadDim;
    keyCache = kv + kvOffset(sizes.layer, 0, b, keyHead, sizes.batchMax, KvHeads, context,
                             kvRow<Kv>(C::HeadDim));
    valueCache = kv + kvOffset(sizes.layer, 1, b, keyHead, sizes.batchMax, KvHeads, context,
                               kvRow<Kv>(C::HeadDim));
  }

  /// The first key that some query sees.
  __device__ __forceinline__ int oldest() const {
    return C::Window > 0 ? max(begin + q0 + 1 - C::Window, 0) : 0;
  }
  /// Copies the queries to rows of `stride` elements.
  __device__ __forceinline__ void copyQueries(X *to, int stride) const {
    for (int id = threadIdx.x; id < Queries * chunks; id += Threads) {
      const int r = id / chunks, c = id % chunks * each;
      const bool valid = q0 + r < seq;
      copyAsync16(to + r * stride + c, valid ? fresh + (i64)(q0 + r) * qkvRow + c : fresh, valid);
    }
  }
  /// Copies elements c on of key and value j; with Append those of new tokens come from qkv.
  __device__ __forceinline__ void copyKey(X *key, X *value, int j, int c) const {
    const bool valid = j < limit;
    const X *from = keyCache + (i64)j * C::HeadDim + c,
            *fromV = valueCache + (i64)j * C::HeadDim + c;
    if (C::Append && j >= begin) {
      from = fresh + (i64)(j - begin) * qkvRow + width + c;
      fromV = from + width;
    }
    copyAsync16(key, valid ? from : fresh, valid);
    copyAsync16(value, valid ? fromV : fresh, valid);
  }
  /// Stores the keys and values of the tile's own tokens in the state.
  __device__ __forceinline__ void append() const {
    for (int id = threadIdx.x; id < (qEnd - q0) * 2 * chunks; id += Threads) {
      const int s = q0 + id / (2 * chunks), part = id / chunks % 2, c = id % chunks * each;
      if (begin + s < context)
        storePack((part == 0 ? keyCache : valueCache) + (i64)(begin + s) * C::HeadDim + c,
                  loadPack<each>(fresh + (i64)s * qkvRow + (part + 1) * width + c));
    }
  }

  /// Scores of keys from j0 on that are not seen become -infinity: s has the layout of mma.m16n8,
  /// rows row0 and row0 + 8 of this lane. mask: the sequence's row of the key mask, or null.
  template <int Tiles>
  __device__ __forceinline__ void hide(float (&s)[Tiles][4], int j0, int row0,
                                       const int *mask) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < Tiles; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int key = j0 + j * 8 + lane % 4 * 2 + e % 2;
        bool visible = key < limit && Score<C>::sees(begin + row0 + e / 2 * 8, key);
        if (C::Mask)
          visible = visible && (mask == nullptr || mask[key] != 0);
        if (!visible)
          s[j][e] = negativeInfinity();
      }
  }
};

} // namespace gpt2c

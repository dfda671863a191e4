// attention_prefix: one query of each sequence (decode) in fp16 or bf16 and the keys of a prefix
// that many sequences share, over a state in pages. A block has a tile
// (runtime/plan/PrefixTiles.h): the keys of some pages, read once for all queries of a head of the
// state that its sequences have: 16 for each warp, those of a sequence together. What it leaves are
// parts of a softmax (prefix_parts.cuh), which the kernel that has the rest of a sequence adds up.
//
// Pages are full and older than the call, so the first keys are on their way before the kernel
// waits for its predecessor, which computes qkv. Queries are turned by their positions with
// RopePairs > 0 (rotated_rows.cuh). Products are those of attention_pages.cuh: keys and values go
// through shared memory, weights of keys are rounded to X.
//
// Config: X, Kv (X), HeadDim (a multiple of 8 up to 256), Heads, KvHeads, Warps, Groups (1),
// PageTokens (a multiple of 64), Window (0), Parts, RopePairs, RopeInterleaved, Table, HeadNorm.
// Kernel: qkv X[rows,Heads+2*KvHeads,HeadDim], kv Kv[pages,layers,2,KvHeads,PageTokens,HeadDim],
// past i32[batch] (null without RopePairs), rows i32[batch], which row a sequence's query is in, or
// null: those of sequences are one behind the other, tables i32[batch,tableStride], tiles
// i32[tiles,4+16*Warps/(Heads/KvHeads)], cosines and sines Table[places,RopePairs], places, gains,
// gainEpsilon (as in attention_decode_group.cuh), parts as in prefix_parts.cuh, layer, layers,
// tableStride, scale.
// Grid: (KvHeads, tiles); block: 32 * Warps; dynamic shared: AttentionPrefix<C>::sharedBytes.
// Flops: 4 keys HeadDim Heads for each sequence of a tile.
#pragma once

#include "templates/attention/pages/paged_warp.cuh"
#include "templates/attention/parts/prefix_parts.cuh"
#include "templates/attention/parts/rotated_rows.cuh"

namespace gpt2c {

template <typename C> struct AttentionPrefix {
  using L = AttentionPages<C>;
  static constexpr int D = C::HeadDim, group = C::Heads / C::KvHeads;
  static constexpr int queries = 16 * C::Warps, members = queries / group;
  static constexpr int words = 4 + members; // of a tile
  static constexpr int tile = L::padded <= 64 ? 64 : L::padded <= 128 ? 32 : 16;
  static constexpr int rowStride = L::rowStride, tileElements = tile * rowStride;
  static constexpr int threads = 32 * C::Warps;
  static constexpr int sharedBytes =
      (queries * rowStride + 4 * tileElements) * (int)sizeof(typename C::X);
  static_assert(C::Heads % C::KvHeads == 0 && members > 0 && C::Window == 0);
  static_assert(C::PageTokens % tile == 0 && !L::bytes && !L::wide);
};

namespace tile {

template <typename C> struct AttentionPrefixParams {
  using X = typename C::X;
  const X *qkv, *kv;
  const int *past, *rows, *tables, *tiles;
  const typename C::Table *cosines, *sines;
  int places;
  const float *gains;
  float gainEpsilon;
  float *parts;
  int layer, layers, tableStride;
  float scale;
  int h, number; // head of the state, tile
  X *shared;
};

/// A tile and a head of the state, in phases; `run` has their order.
template <typename C> struct AttentionPrefixTile {
  using X = typename C::X;
  using P = AttentionPrefix<C>;
  using Out = PrefixParts<C>;
  static constexpr int D = P::D, group = P::group, stride = P::rowStride, keys = P::tile;
  static constexpr int queryRow = (C::Heads + 2 * C::KvHeads) * D;
  static constexpr bool rope = C::RopePairs > 0;

  const AttentionPrefixParams<C> p;
  int (&sequences)[P::members];
  int warp, lane;
  int firstPage, pages, part, count; // of the tile
  const int *table;                  // the columns of the tile's pages
  int nextPage;                      // of the keys to be fetched
  PagedProducts<C, X> products;
  float o[P::L::padded / 8][4] = {};
  float top[2] = {negativeInfinity(), negativeInfinity()}, sum[2] = {};

  __device__ __forceinline__ AttentionPrefixTile(const AttentionPrefixParams<C> &p,
                                                 int (&sequences)[P::members])
      : p(p), sequences(sequences) {}

  __device__ __forceinline__ void run() {
    locate();
    if (count == 0) { // nobody's: the successor relies on this one's wait
      waitForPredecessor();
      return;
    }
    fetch(0);
    takeQueries();
    const int tiles = pages * (C::PageTokens / keys);
    const bool works = warp * 16 < count * group;
#pragma unroll 1
    for (int t = 0; t < tiles; t++) {
      copyAsyncWait<0>();
      __syncthreads(); // the tile is there, and all have read the one before
      if (t + 1 < tiles)
        fetch(t + 1);
      if (works)
        attend(keysOf(t), valuesOf(t));
    }
    if (works)
      leave();
  }

  __device__ __forceinline__ void locate() {
    warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int *words = p.tiles + (i64)p.number * P::words;
    firstPage = words[0], pages = words[1], part = words[2], count = min(words[3], P::members);
    for (int i = threadIdx.x; i < count; i += P::threads)
      sequences[i] = words[4 + i];
    table = p.tables + (i64)(count > 0 ? words[4] : 0) * p.tableStride + firstPage;
    nextPage = *table;
  }

  __device__ __forceinline__ X *keysOf(int t) const {
    return p.shared + P::queries * stride + t % 2 * 2 * P::tileElements;
  }
  __device__ __forceinline__ X *valuesOf(int t) const { return keysOf(t) + P::tileElements; }
  /// Tiles are fetched one behind the other; the number of the next one's page comes meanwhile.
  __device__ __forceinline__ void fetch(int t) {
    constexpr int chunks = P::L::padded / 8, all = keys * chunks, each = C::PageTokens / keys;
    const i64 block = ((i64)nextPage * p.layers + p.layer) * 2 * C::KvHeads + p.h;
    const X *from = p.kv + (block * C::PageTokens + t % each * keys) * D;
    nextPage = table[min((t + 1) / each, pages - 1)];
#pragma unroll
    for (int i = 0; i < ceilDiv(all, P::threads); i++) {
      const int id = i * P::threads + threadIdx.x, r = id / chunks, c = id % chunks * 8;
      if (all % P::threads != 0 && id >= all)
        break;
      const bool valid = isColumn<C>(c);
      const X *key = from + (valid ? r * D + c : 0);
      copyAsync16(keysOf(t) + r * stride + c, key, valid);
      copyAsync16(valuesOf(t) + r * stride + c, key + C::KvHeads * C::PageTokens * D, valid);
    }
    copyAsyncCommit();
  }

  // The queries
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ int sequenceOf(int row) const {
    return sequences[min(row / group, count - 1)];
  }
  __device__ __forceinline__ const X *queryOf(int row) const {
    const int b = sequenceOf(row);
    return p.qkv + (i64)(p.rows != nullptr ? p.rows[b] : b) * queryRow +
           (p.h * group + row % group) * D;
  }
  /// Waits for the predecessor; then the warp's queries are where it multiplies them.
  __device__ __forceinline__ void takeQueries() {
    X(*to)[stride] = reinterpret_cast<X(*)[stride]>(p.shared);
    const int rows = count * group;
    __syncthreads(); // sequences are there
    if constexpr (rope) {
      rotate(to, rows);
    } else {
      waitForPredecessor();
      releaseSuccessor();
      for (int i = threadIdx.x; i < rows * (D / 8); i += P::threads)
        storePack(&to[i / (D / 8)][i % (D / 8) * 8],
                  loadPack<8>(queryOf(i / (D / 8)) + i % (D / 8) * 8));
    }
    if constexpr (P::L::padded > D)
      for (int row = threadIdx.x; row < rows; row += P::threads)
        storePack(&to[row][D], Pack<X, 8>{});
    __syncthreads();
    products.loadQueries(to[warp * 16], lane);
  }
  /// As many at once as leave a thread 16 elements or pairs.
  __device__ __forceinline__ void rotate(X (*to)[stride], int rows) {
    constexpr int each = D - C::RopePairs,
                  atOnce = minInt(P::queries, maxInt(16 * P::threads / each, 1));
    using Rotated = RotatedRows<C, atOnce, P::threads>;
    __shared__ float factor[C::HeadNorm ? atOnce : 1];
#pragma unroll 1
    for (int first = 0; first < rows; first += atOnce) {
      const int some = min(rows - first, atOnce);
      auto from = [&](int row) { return queryOf(first + row); };
      Rotated rotated;
      rotated.loadAngles(p.cosines, p.sines, p.places,
                         [&](int row) { return p.past[sequenceOf(first + row)]; });
      if (first == 0) {
        waitForPredecessor();
        releaseSuccessor();
      }
      if constexpr (C::HeadNorm) {
        __syncthreads(); // the factors before were read
        rotated.factors(factor, some, p.gainEpsilon, from);
        __syncthreads();
      }
      rotated.rotate(to + first, some, from, [&](int row, int d) {
        return factor[row] * p.gains[(p.h * group + (first + row) % group) * D + d];
      });
    }
  }

  // Keys
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ void attend(const X *k, const X *v) {
    float s[keys / 8][4], keep[2];
    products.multiplyKeys(s, k, lane);
    softmax(s, keep);
    products.addValues(o, s, keep, v, lane);
  }
  /// Scores become weights; `keep` rescales what is accumulated so far.
  __device__ __forceinline__ void softmax(float (&s)[keys / 8][4], float (&keep)[2]) {
    const float factor = scoreFactor(p.scale);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float m = top[half];
#pragma unroll
      for (int j = 0; j < keys / 8; j++)
        m = fmaxf(m, fmaxf(s[j][half * 2], s[j][half * 2 + 1]));
      m = warpReduce<Max, 4>(m);
      const float base = m == negativeInfinity() ? 0.0f : m * factor;
      keep[half] = exp2Approximate(fmaf(top[half], factor, -base));
      top[half] = m;
      float part = 0.0f;
#pragma unroll
      for (int j = 0; j < keys / 8; j++)
#pragma unroll
        for (int e = half * 2; e < half * 2 + 2; e++) {
          s[j][e] = exp2Approximate(fmaf(s[j][e], factor, -base));
          part += s[j][e];
        }
      sum[half] = fmaf(sum[half], keep[half], part);
    }
  }

  /// The warp's parts.
  __device__ __forceinline__ void leave() {
    const float factor = scoreFactor(p.scale);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float all = warpReduce<Sum, 4>(sum[half]);
      const int row = warp * 16 + half * 8 + lane / 4;
      if (row >= count * group)
        continue;
      const i64 query = (i64)sequenceOf(row) * C::Heads + p.h * group + row % group;
      float *to = p.parts + (query * C::Parts + part) * Out::stride;
      if (lane % 4 == 0)
        *reinterpret_cast<float2 *>(to) = {top[half] * factor, all};
#pragma unroll
      for (int d = 0; d < D / 8; d++)
        *reinterpret_cast<float2 *>(to + Out::head + d * 8 + lane % 4 * 2) = {o[d][half * 2],
                                                                              o[d][half * 2 + 1]};
    }
  }
};

template <typename C>
__device__ __forceinline__ void
attentionPrefix(const typename C::X *qkv, const typename C::X *kv, const int *past, const int *rows,
                const int *tables, const int *tiles, const typename C::Table *cosines,
                const typename C::Table *sines, int places, const float *gains, float gainEpsilon,
                float *parts, int layer, int layers, int tableStride, float scale, int h,
                int number, typename C::X *shared) {
  __shared__ int sequences[AttentionPrefix<C>::members];
  AttentionPrefixTile<C> tile({qkv, kv, past, rows, tables, tiles, cosines, sines, places, gains,
                               gainEpsilon, parts, layer, layers, tableStride, scale, h, number,
                               shared},
                              sequences);
  tile.run();
}

} // namespace tile
} // namespace gpt2c

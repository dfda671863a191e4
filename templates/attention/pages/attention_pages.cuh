// append_attention over a KV state in pages, on tensor cores: new tokens of any sequences, in
// pieces {row, count, position, table} of at most 16 * Warps tokens, prompts and single steps in
// one launch.
//
// A block has one head of one piece. S = Q K^T and O += P V with an online softmax in fp32
// registers: in fp16 and bf16 by mma.m16n8k16 with P in that type, as in attention_prefill_mma.cuh,
// in fp32 by 3xTF32 (tf32_products.cuh).
// - A piece of more than 16 tokens: each of Warps warps has 16 of them, and tiles of longTile keys
//   come to all of these through two shared buffers. Groups of such warps have the same tokens and
//   take tiles in turn; what they have is added up at the end.
// - A shorter one: all warps have its tokens, each another part of the keys, in tiles of shortTile
//   through buffers of its own; the warps meet at the end. Blocks share what is longer than a tile
//   for each warp; the last of them to arrive adds their parts in order.
// Keys and values of the call's own tokens come from its rows; the blocks of split 0 of each head
// of keys also copy their piece's to the pages. In a state of bytes kv_append_pages.cuh has put
// them there just before, and tiles become X on their way to shared memory. Tiles of earlier tokens
// need nothing of the kernel right before, which computes rows: the first ones are on their way
// before it has ended. With Window, the tiles before the first key that some query of the piece
// sees are skipped.
//
// With Parts > 0 keys of a prefix that other sequences of one token have, too, are not read: what
// they come to joins the warps' parts (prefix_parts.cuh).
//
// Pieces of a table are one behind the other, in `pieces`, in rows and in positions. No page that a
// piece writes is in another table of the call.
//
// Config: X (__half, __nv_bfloat16 or float), Kv (X, or signed char or Fp8), HeadDim (a multiple of
// 8, at most 256), Heads, KvHeads, PageTokens (a multiple of longTile), Warps, Groups (1 or 2),
// Window (a query sees its own key and those of the Window - 1 tokens before it; 0: of all), Parts
// (0 with Window).
// Kernel: qkv X[rows,Heads+2*KvHeads,HeadDim], kv X[pages,layers,2,KvHeads,PageTokens,HeadDim], out
// X[rows,Heads,HeadDim], pieces i32[pieces,4], tables i32[sequences,tableStride], partial
// f32[pieces,Heads,splits,16,HeadDim+2], counters u32[pieces,Heads], zero before and after, layer,
// layers, tableStride, scale, prefixes and prefixParts, of sequences as tables are (null without
// Parts).
// Grid: (splits, Heads, pieces), at most mostSplits of them; block: 32 * Warps * Groups; dynamic
// shared: AttentionPages<C>::sharedBytes.
// Bytes: 2 sizeof(X) (position + count) HeadDim for each piece and head; flops: 4 HeadDim Heads
// (visible pairs).
#pragma once

#include "templates/attention/pages/paged_warp.cuh"
#include "templates/attention/parts/prefix_parts.cuh"
#include "templates/device/split_k.cuh"

namespace gpt2c {

/// Which tokens of which sequence a piece has.
struct AttentionPiece {
  int row, count, position, table;
  int past; // position of the first token that the call has of the sequence

  /// By a whole warp, each lane looking at another of the pieces before.
  static __device__ __forceinline__ AttentionPiece of(const int *pieces, i64 number) {
    const int lane = threadIdx.x % 32;
    AttentionPiece piece = {};
    for (i64 from = number;; from -= 32) {
      const int4 words = from >= lane ? reinterpret_cast<const int4 *>(pieces)[from - lane]
                                      : make_int4(0, 0, 0, -1);
      if (from == number)
        piece = {__shfl_sync(~0u, words.x, 0), __shfl_sync(~0u, words.y, 0),
                 __shfl_sync(~0u, words.z, 0), __shfl_sync(~0u, words.w, 0), 0};
      const unsigned same = __ballot_sync(~0u, words.w == piece.table && words.y > 0);
      if (same)
        piece.past = __shfl_sync(~0u, words.z, same == ~0u ? 31 : __ffs(~same) - 2);
      if (same != ~0u)
        return piece;
    }
  }
};

namespace tile {

/// The parameters of the kernel and of the tile.
template <typename X, typename Kv = X> struct AttentionPagesParams {
  const X *qkv;
  Kv *kv;
  X *out;
  const int *pieces, *tables;
  float *partial;
  unsigned *counters;
  int layer, layers, tableStride;
  float scale;
  int split, splits, h;
  i64 number; // of the piece
  X *shared;
  const int *prefixes = nullptr;
  const float *prefixParts = nullptr;
};

/// One head of a piece, in phases; `run` has their order. Exact: see PagedWarp.
template <typename C, bool Exact = false> struct AttentionPagesTile {
  using L = AttentionPages<C>;
  using X = typename C::X;
  static constexpr int D = C::HeadDim, width = C::Heads * D, qkvRow = width + 2 * C::KvHeads * D;
  static constexpr int sharing = C::Heads / C::KvHeads; // heads of the same keys
  static constexpr int partRow = D + 2;                 // output, maximum, sum
  static_assert(C::Parts == 0 || C::Window == 0);

  const AttentionPagesParams<X, typename C::Kv> p;
  const int warp, lane;
  AttentionPiece piece;
  PagedHead<C> head;
  int first, limit; // of the keys that some query sees, and behind the last
  PagedWarp<C, Exact> own;

  __device__
      __forceinline__ explicit AttentionPagesTile(const AttentionPagesParams<X, typename C::Kv> &p)
      : p(p), warp(threadIdx.x / 32), lane(threadIdx.x % 32) {}

  __device__ __forceinline__ void run() {
    if (!locate())
      return;
    if (piece.count <= 16)
      attendShort();
    else if (p.split == 0)
      attendLong();
  }
  /// Whether the piece has tokens. A block that has nothing to do ends at once: those that have
  /// something wait for the kernel before, and the next one waits for all of this.
  __device__ __forceinline__ bool locate() {
    piece = AttentionPiece::of(p.pieces, p.number);
    if (piece.count <= 0)
      return false;
    const int keyHead = p.h / sharing;
    head = {p.kv,
            p.tables + (i64)piece.table * p.tableStride,
            p.layer,
            p.layers,
            keyHead,
            piece.past,
            p.qkv + (i64)(piece.row - piece.position) * qkvRow + width + keyHead * D};
    first = C::Window > 0 ? maxInt(piece.position - C::Window + 1, 0)
                          : PrefixParts<C>::beginOf(p.prefixes, piece.table);
    limit = piece.position + piece.count;
    own.factor = scoreFactor(p.scale);
    return true;
  }
  static __device__ __forceinline__ void wait() {
    waitForPredecessor();
    releaseSuccessor();
  }
  /// With the tile from key j0 on its way, where the kernel before does not compute it, waits for
  /// that kernel. What `load` loads is then on its way in any case, and the queries are.
  template <int Rows, int Keys, typename Load>
  __device__ __forceinline__ void begin(int j0, Load &&load) const {
    const bool early = j0 + Keys <= piece.past;
    if (early)
      load();
    wait();
    if (!early)
      load();
    copyQueries<Rows>();
    copyAsyncCommit();
    append();
  }
  /// Keys and values of the piece to the pages.
  __device__ __forceinline__ void append() const {
    constexpr int chunks = D / L::chunk;
    if constexpr (!L::bytes) {
      if (p.split != 0 || p.h % sharing != 0)
        return;
#pragma unroll 2
      for (int id = threadIdx.x; id < piece.count * 2 * chunks; id += L::threads) {
        const int part = id / chunks % 2, c = id % chunks * L::chunk;
        const int position = piece.position + id / (2 * chunks);
        storePack(head.row(part, position) + c, loadPack<L::chunk>(head.fresh(part, position) + c));
      }
    }
  }

  /// Queries of the piece to rows of shared memory, zeros behind the last.
  template <int Rows> __device__ __forceinline__ void copyQueries() const {
    constexpr int chunks = L::padded / L::chunk;
    for (int id = threadIdx.x; id < Rows * chunks; id += L::threads) {
      const int r = id / chunks, c = id % chunks * L::chunk;
      const bool valid = r < piece.count && isColumn<C>(c);
      const X *from =
          p.qkv + (i64)(piece.row + (valid ? r : 0)) * qkvRow + p.h * D + (valid ? c : 0);
      copyAsync16(p.shared + r * L::rowStride + c, from, valid);
    }
  }
  __device__ __forceinline__ X *outRow(int r) const {
    return p.out + (i64)(piece.row + r) * width + p.h * D;
  }

  // More than 16 queries
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ void attendLong() {
    constexpr int Keys = L::longTile, tileSize = Keys * L::rowStride, groupThreads = 32 * C::Warps;
    const int group = warp / C::Warps, rows = warp % C::Warps * 16; // of this warp
    X *sk = p.shared + (L::queries + group * 4 * Keys) * L::rowStride, *sv = sk + 2 * tileSize;
    const int position = piece.position + rows;
    const int from = first / Keys + group;
    const int tiles = (limit + Keys - 1) / Keys;
    auto load = [&](int t, int buffer) {
      if (t < tiles)
        loadPagedTile<C, Keys, groupThreads>(sk + buffer * tileSize, sv + buffer * tileSize, head,
                                             t * Keys, limit, threadIdx.x % groupThreads);
      copyAsyncCommit();
    };
    begin<L::queries, Keys>(from * Keys, [&] { load(from, 0); });
    copyAsyncWait<0>();
    __syncthreads();
    own.products.loadQueries(p.shared + rows * L::rowStride, lane);
#pragma unroll 1
    for (int t = from, buffer = 0; t < tiles; t += C::Groups, buffer ^= 1) {
      load(t + C::Groups, buffer ^ 1);
      copyAsyncWait<1>();
      meetGroup(group);
      if (rows < piece.count && t * Keys < position + 16)
        own.template attend<Keys>(sk + buffer * tileSize, sv + buffer * tileSize, t * Keys,
                                  position, lane);
      meetGroup(group);
    }
    copyAsyncWait<0>();
    if (C::Groups > 1)
      addGroups(group);
    if (group == 0)
      store(rows);
  }
  /// A barrier of the warps of a group.
  static __device__ __forceinline__ void meetGroup(int group) {
    if constexpr (C::Groups > 1)
      asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(32 * C::Warps) : "memory");
    else
      __syncthreads();
  }
  /// The second group leaves its state, the first adds it to its own. Float i of lane l of warp w
  /// of a group is float (i * Warps + w) * 32 + l of shared memory.
  __device__ __forceinline__ void addGroups(int group) {
    constexpr int stride = 32 * C::Warps;
    float *at = reinterpret_cast<float *>(p.shared) + threadIdx.x % stride;
    __syncthreads();
    if (group == 1)
      own.leave(at, stride);
    __syncthreads();
    if (group == 0)
      own.add([&](int i) { return at[i * stride]; }, own.factor);
  }
  __device__ __forceinline__ void store(int rows) const {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float total = warpReduce<Sum, 4>(own.sum[half]);
      const float inverse = total != 0.0f ? 1.0f / total : 0.0f;
      const int r = rows + lane / 4 + half * 8;
      if (r >= piece.count)
        continue;
      X *to = outRow(r) + lane % 4 * 2;
#pragma unroll
      for (int d = 0; d < D / 8; d++) {
        const float pair[2] = {own.o[d][half * 2] * inverse, own.o[d][half * 2 + 1] * inverse};
        storeFloats<2>(to + d * 8, pair);
      }
    }
  }

  // Up to 16 queries
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ void attendShort() {
    constexpr int Keys = L::shortTile, tileSize = Keys * L::rowStride;
    constexpr int Buffers = L::shortBuffers;
    const int from = first / Keys, tiles = (limit + Keys - 1) / Keys - from;
    const int splits = minInt(p.splits, (tiles + L::warps - 1) / L::warps);
    if (p.split >= splits)
      return;
    const int end = from + (p.split + 1) * tiles / splits;
    int t = from + p.split * tiles / splits + warp;
    X *sk = p.shared + (16 * L::rowStride + warp * 2 * Buffers * tileSize),
      *sv = sk + Buffers * tileSize;
    auto load = [&](int t, int buffer) {
      if (t < end)
        loadPagedTile<C, Keys, 32>(sk + buffer * tileSize, sv + buffer * tileSize, head, t * Keys,
                                   limit, lane);
      copyAsyncCommit();
    };
    begin<16, Keys>(t * Keys, [&] {
      if (Buffers > 1)
        load(t, 0);
    });
    takePrefix();
    copyAsyncWait<0>();
    __syncthreads();
    own.products.loadQueries(p.shared, lane);
#pragma unroll 1
    for (int buffer = 0; t < end; t += L::warps, buffer ^= Buffers - 1) {
      load(Buffers > 1 ? t + L::warps : t, buffer ^ (Buffers - 1));
      copyAsyncWait<Buffers - 1>();
      __syncwarp();
      own.template attend<Keys>(sk + buffer * tileSize, sv + buffer * tileSize, t * Keys,
                                piece.position, lane);
      __syncwarp();
    }
    copyAsyncWait<0>();
    meet(splits);
  }

  /// What the first split has of the only query's prefix, as a row of `meet`.
  static __device__ __forceinline__ float *ofPrefix() {
    __shared__ float row[partRow];
    return row;
  }
  __device__ __forceinline__ bool hasPrefix() const {
    return C::Parts > 0 && p.split == 0 && first > 0;
  }
  __device__ __forceinline__ void takePrefix() const {
    if constexpr (C::Parts > 0)
      if (hasPrefix() && warp == L::warps - 1) {
        const float2 of = PrefixParts<C>::merge(p.prefixParts, p.prefixes, piece.table,
                                                (i64)piece.table * C::Heads + p.h, ofPrefix());
        if (lane == 0) {
          ofPrefix()[D] = of.x;
          ofPrefix()[D + 1] = of.y;
        }
      }
  }

  /// Parts of all warps in shared memory, then of all splits in `partial`; rows of output, maximum
  /// (base 2) and sum.
  __device__ __forceinline__ void meet(int splits) {
    float *parts = reinterpret_cast<float *>(p.shared);
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float *to = parts + (warp * 16 + lane / 4 + half * 8) * partRow;
      const float total = warpReduce<Sum, 4>(own.sum[half]);
#pragma unroll
      for (int d = 0; d < D / 8; d++) {
        to[d * 8 + lane % 4 * 2] = own.o[d][half * 2];
        to[d * 8 + lane % 4 * 2 + 1] = own.o[d][half * 2 + 1];
      }
      if (lane % 4 == 0) {
        to[D] = own.top[half] * own.factor;
        to[D + 1] = total;
      }
    }
    __syncthreads();
    const i64 of = p.number * C::Heads + p.h;
    float *mine = p.partial + (of * p.splits + p.split) * 16 * partRow;
    for (int id = threadIdx.x; id < piece.count * D; id += L::threads) {
      const int r = id / D, d = id % D;
      const Merged m = merge<L::warps + (C::Parts > 0)>(
          L::warps + hasPrefix(),
          [&](int i, int at) {
            return i < L::warps ? parts[(i * 16 + r) * partRow + at] : ofPrefix()[at];
          },
          d);
      if (splits == 1) {
        outRow(r)[d] = fromFloat<X>(m.sum != 0.0f ? m.out / m.sum : 0.0f);
        continue;
      }
      __stcg(mine + r * partRow + d, m.out);
      if (d == 0) {
        __stcg(mine + r * partRow + D, m.top);
        __stcg(mine + r * partRow + D + 1, m.sum);
      }
    }
    if (splits == 1 || !arriveLast(p.counters + of, splits))
      return;
    const float *all = p.partial + of * p.splits * 16 * partRow;
    for (int id = threadIdx.x; id < piece.count * D; id += L::threads) {
      const int r = id / D, d = id % D;
      const Merged m = merge<L::mostSplits>(
          splits, [&](int i, int at) { return __ldcg(all + (i * 16 + r) * partRow + at); }, d);
      outRow(r)[d] = fromFloat<X>(m.sum != 0.0f ? m.out / m.sum : 0.0f);
    }
  }

  struct Merged {
    float out, top, sum;
  };
  /// Element d of the `count` parts, at most Most.
  template <int Most, typename Part>
  static __device__ __forceinline__ Merged merge(int count, Part &&part, int d) {
    Merged m = {0.0f, negativeInfinity(), 0.0f};
#pragma unroll
    for (int i = 0; i < Most; i++)
      if (i < count)
        m.top = fmaxf(m.top, part(i, D));
#pragma unroll
    for (int i = 0; i < Most; i++)
      if (i < count) {
        const float of = part(i, D);
        const float weight = of == negativeInfinity() ? 0.0f : exp2f(of - m.top);
        m.out += part(i, d) * weight;
        m.sum += part(i, D + 1) * weight;
      }
    return m;
  }
};

template <typename C>
__device__ __forceinline__ void
attentionPages(const typename C::X *qkv, typename C::Kv *kv, typename C::X *out, const int *pieces,
               const int *tables, float *partial, unsigned *counters, int layer, int layers,
               int tableStride, float scale, const int *prefixes, const float *prefixParts,
               int split, int splits, int h, i64 number, typename C::X *shared) {
  AttentionPagesTile<C> tile({qkv, kv, out, pieces, tables, partial, counters, layer, layers,
                              tableStride, scale, split, splits, h, number, shared, prefixes,
                              prefixParts});
  tile.run();
}

} // namespace tile
} // namespace gpt2c

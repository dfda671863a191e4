// attention_pages (attention_pages.cuh) in which the sums of a query depend on its position and its
// keys alone, bit for bit, and not on what else its piece or the call has.
//
// Keys are in chunks of 128, by their positions. A warp goes through the tiles of a chunk as
// attention_pages does, from nothing; chunks are added up one behind the other.
// - A piece of more than 16 tokens: each warp has 16 of them, and all chunks.
// - A shorter one: all warps have its tokens, and take chunks in turn; the first one adds them up.
// - One token: the same, but a warp goes on while others are behind, and asks for the next keys and
//   values where it has read those before. What chunks leave of the one row is added up by all
//   threads, one column each or two, behind `places` chunks.
//
// Config and parameters: those of attention_pages, with one group and no splits; `partial` and
// `counters` are not used. Dynamic shared: AttentionPagesOrdered<C>::sharedBytes.
#pragma once

#include "templates/attention/pages/attention_pages.cuh"

namespace gpt2c {

template <typename C> struct AttentionPagesOrdered {
  using L = AttentionPages<C>;
  static constexpr int threads = L::threads;
  static constexpr int rowBytes = L::rowStride * sizeof(typename C::X);
  static constexpr int shortBytes(int tile) { return (16 + 2 * C::Warps * tile) * rowBytes; }
  static constexpr int keys =
      shortBytes(L::longTile) <= L::room || L::longTile == 16 ? L::longTile : L::longTile / 2;
  static constexpr int chunkTiles = 128 / keys;
  // Of a chunk's row: outputs, what each lane of a quad has of the sum, and the maximum.
  static constexpr int places = 8, placeFloats = C::HeadDim + 5;
  static constexpr int placesBytes = places * placeFloats * 4;
  // Queries that are in registers then leave room.
  static constexpr bool apart = L::queriesStay;
  static constexpr int sharedBytes =
      maxInt((L::queries + 4 * keys) * rowBytes, shortBytes(keys) + (apart ? placesBytes : 0));
  static_assert(apart || placesBytes <= 16 * rowBytes);
  // What a warp leaves takes the place of its tiles.
  static_assert(tile::PagedState<C>::floats * 32 * 4 <= 2 * keys * rowBytes);
  static_assert(C::Groups == 1);
};

namespace tile {

template <typename C> struct AttentionPagesOrderedTile : AttentionPagesTile<C, true> {
  using Base = AttentionPagesTile<C, true>;
  using Base::p, Base::warp, Base::lane, Base::piece, Base::head, Base::own;
  using typename Base::L, typename Base::X;
  static constexpr int Keys = AttentionPagesOrdered<C>::keys, tileSize = Keys * L::rowStride;
  static constexpr int chunkTiles = AttentionPagesOrdered<C>::chunkTiles;

  PagedState<C> total; // of the chunks so far
  int from, tiles;     // of keys: the first that some query sees, and behind the last

  using Base::Base;

  __device__ __forceinline__ void run() {
    if (!Base::locate())
      return;
    from = Base::first / Keys;
    tiles = (Base::limit + Keys - 1) / Keys;
    if (piece.count == 1)
      attendOne();
    else if (piece.count <= 16)
      attendShort();
    else
      attendLong();
  }

  __device__ __forceinline__ void attendLong() {
    X *sk = p.shared + L::queries * L::rowStride, *sv = sk + 2 * tileSize;
    const int rows = warp * 16, position = piece.position + rows;
    auto load = [&](int t, int buffer) {
      if (t < tiles)
        loadPagedTile<C, Keys, L::threads>(sk + buffer * tileSize, sv + buffer * tileSize, head,
                                           t * Keys, Base::limit, threadIdx.x);
      copyAsyncCommit();
    };
    Base::template begin<L::queries, Keys>(from * Keys, [&] { load(from, 0); });
    copyAsyncWait<0>();
    __syncthreads();
    own.products.loadQueries(p.shared + rows * L::rowStride, lane);
#pragma unroll 1
    for (int t = from, buffer = 0; t < tiles; t++, buffer ^= 1) {
      load(t + 1, buffer ^ 1);
      copyAsyncWait<1>();
      __syncthreads();
      if (rows < piece.count && t * Keys < position + 16)
        own.template attend<Keys>(sk + buffer * tileSize, sv + buffer * tileSize, t * Keys,
                                  position, lane);
      if ((t + 1) % chunkTiles == 0 || t + 1 == tiles)
        endChunk();
      __syncthreads();
    }
    store(rows);
  }
  __device__ __forceinline__ void endChunk() {
    PagedState<C> &chunk = own;
    total.add([&](int i) { return chunk.get(i); }, own.factor);
    chunk = PagedState<C>();
  }

  __device__ __forceinline__ void attendShort() {
    auto tilesOf = [&](int w) { return p.shared + (16 + w * 2 * Keys) * L::rowStride; };
    auto chunkOf = [&](int w) { return reinterpret_cast<float *>(tilesOf(w)) + lane; };
    X *sk = tilesOf(warp), *sv = sk + tileSize;
    auto load = [&](int t) {
      if (t < tiles)
        loadPagedTile<C, Keys, 32>(sk, sv, head, t * Keys, Base::limit, lane);
      copyAsyncCommit();
    };
    int chunk = from / chunkTiles; // of the first warp
    const int ahead = maxInt(from, (chunk + warp) * chunkTiles);
    Base::template begin<16, Keys>(ahead * Keys, [&] { load(ahead); });
    copyAsyncWait<0>();
    __syncthreads();
    own.products.loadQueries(p.shared, lane);
#pragma unroll 1
    for (; chunk * chunkTiles < tiles; chunk += C::Warps) {
      const int end = minInt((chunk + warp + 1) * chunkTiles, tiles);
#pragma unroll 1
      for (int t = maxInt(from, (chunk + warp) * chunkTiles); t < end; t++) {
        if (t != ahead)
          load(t);
        copyAsyncWait<0>();
        __syncwarp();
        own.template attend<Keys>(sk, sv, t * Keys, piece.position, lane);
        __syncwarp();
      }
      PagedState<C> &state = own;
      state.leave(chunkOf(warp), 32);
      state = PagedState<C>();
      __syncthreads();
      if (warp == 0)
#pragma unroll 1
        for (int w = 0; w < C::Warps; w++)
          total.add([&](int i) { return chunkOf(w)[i * 32]; }, own.factor);
      __syncthreads();
    }
    if (warp == 0)
      store(0);
  }

  // One token
  // -----------------------------------------------------------------------------------------------

  __device__ __forceinline__ float *placeOf(int chunk) const {
    using O = AttentionPagesOrdered<C>;
    X *places = p.shared + (O::apart ? (16 + C::Warps * 2 * Keys) * L::rowStride : 0);
    return reinterpret_cast<float *>(places) +
           (chunk - from / chunkTiles) % O::places * O::placeFloats;
  }
  /// The row's state, which lanes 0 to 3 have.
  __device__ __forceinline__ void leaveRow(int chunk) const {
    if (lane >= 4)
      return;
    float *to = placeOf(chunk);
#pragma unroll
    for (int d = 0; d < Base::D / 8; d++)
#pragma unroll
      for (int e = 0; e < 2; e++)
        to[d * 8 + lane * 2 + e] = own.o[d][e];
    to[Base::D + lane] = own.sum[0];
    to[Base::D + 4] = own.top[0];
  }
  static constexpr int columns = (Base::D + L::threads - 1) / L::threads; // of a thread
  /// A column of the chunks so far, and the part of the sum that its lane has.
  struct Column {
    float value = 0.0f, sum = 0.0f, top = negativeInfinity();
  };

  __device__ __forceinline__ void attendOne() {
    constexpr int places = AttentionPagesOrdered<C>::places, turns = places / C::Warps;
    static_assert(places % C::Warps == 0);
    X *sk = p.shared + (16 + warp * 2 * Keys) * L::rowStride, *sv = sk + tileSize;
    auto load = [&](X *to, int part, int t) {
      if (t < tiles)
        loadPagedPart<C, Keys, 32>(to, part, head, t * Keys, Base::limit, lane);
      copyAsyncCommit();
    };
    const int begun = from / chunkTiles; // the first chunk
    int t = maxInt(from, (begun + warp) * chunkTiles);
    Base::template begin<16, Keys>(t * Keys, [&] {
      load(sk, 0, t);
      load(sv, 1, t);
    });
    copyAsyncWait<0>();
    __syncthreads();
    own.products.loadQueries(p.shared, lane);
    __syncthreads(); // their place is taken
    Column all[columns];
#pragma unroll 1
    for (int first = begun; first * chunkTiles < tiles; first += places) {
#pragma unroll 1
      for (int turn = 0; turn < turns; turn++) {
        const int chunk = first + turn * C::Warps + warp;
        const int end = minInt((chunk + 1) * chunkTiles, tiles);
        if (t >= end)
          break;
#pragma unroll 1
        do {
          const int next = t + 1 < end ? t + 1 : (chunk + C::Warps) * chunkTiles;
          copyAsyncWait<1>();
          __syncwarp();
          own.template attend<Keys>(
              sk, sv, t * Keys, piece.position, lane,
              [&] {
                __syncwarp();
                load(sk, 0, next);
              },
              [&] {
                copyAsyncWait<1>();
                __syncwarp();
              });
          __syncwarp();
          load(sv, 1, next);
          t = next;
        } while (t < end);
        leaveRow(chunk);
        static_cast<PagedState<C> &>(own) = PagedState<C>();
      }
      __syncthreads();
      const int last = minInt(first + places, (tiles + chunkTiles - 1) / chunkTiles);
#pragma unroll 1
      for (int chunk = first; chunk < last; chunk++) {
        const float *of = placeOf(chunk);
#pragma unroll
        for (int i = 0; i < columns; i++) {
          const int at = minInt(threadIdx.x + i * L::threads, Base::D - 1);
          const PagedShares shares = PagedShares::of(all[i].top, of[Base::D + 4], own.factor);
          all[i].sum = shares.add(all[i].sum, of[Base::D + at % 8 / 2]);
          all[i].value = shares.add(all[i].value, of[at]);
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < columns; i++)
      storeColumn(all[i], threadIdx.x + i * L::threads);
  }
  /// As `store` does it: lanes of a quad have two columns each of eight.
  __device__ __forceinline__ void storeColumn(const Column &all, int column) const {
    float total = all.sum;
    total += __shfl_xor_sync(fullWarp, total, 4);
    total += __shfl_xor_sync(fullWarp, total, 2);
    const float inverse = total != 0.0f ? 1.0f / total : 0.0f;
    if (column < Base::D)
      Base::outRow(0)[column] = fromFloat<X>(all.value * inverse);
  }

  __device__ __forceinline__ void store(int rows) {
    static_cast<PagedState<C> &>(own) = total;
    Base::store(rows);
  }
};

template <typename C>
__device__ __forceinline__ void
attentionPagesOrdered(const typename C::X *qkv, typename C::Kv *kv, typename C::X *out,
                      const int *pieces, const int *tables, float *partial, unsigned *counters,
                      int layer, int layers, int tableStride, float scale, int split, int splits,
                      int h, i64 number, typename C::X *shared) {
  AttentionPagesOrderedTile<C> tile({qkv, kv, out, pieces, tables, partial, counters, layer, layers,
                                     tableStride, scale, split, splits, h, number, shared});
  tile.run();
}

} // namespace tile
} // namespace gpt2c

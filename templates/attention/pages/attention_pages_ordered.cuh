// attention_pages (attention_pages.cuh) in which the sums of a query depend on its position and its
// keys alone, bit for bit, and not on what else its piece or the call has.
//
// Keys are in chunks of 128, by their positions. A warp goes through the tiles of a chunk as
// attention_pages does, from nothing; chunks are added up one behind the other.
// - A piece of more than 16 tokens: each warp has 16 of them, and all chunks.
// - A shorter one: all warps have its tokens, and take chunks in turn; the first one adds them up.
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
  // What every GPU has room for.
  static constexpr int keys = shortBytes(L::longTile) <= 99 * 1024 ? L::longTile : L::longTile / 2;
  static constexpr int chunkTiles = 128 / keys;
  static constexpr int sharedBytes = maxInt((L::queries + 4 * keys) * rowBytes, shortBytes(keys));
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
    if (piece.count <= 16)
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
  __device__ __forceinline__ void store(int rows) {
    static_cast<PagedState<C> &>(own) = total;
    Base::store(rows);
  }
};

template <typename C>
__device__ __forceinline__ void
attentionPagesOrdered(const typename C::X *qkv, typename C::X *kv, typename C::X *out,
                      const int *pieces, const int *tables, float *partial, unsigned *counters,
                      int layer, int layers, int tableStride, float scale, int split, int splits,
                      int h, i64 number, typename C::X *shared) {
  AttentionPagesOrderedTile<C> tile({qkv, kv, out, pieces, tables, partial, counters, layer, layers,
                                     tableStride, scale, split, splits, h, number, shared});
  tile.run();
}

} // namespace tile
} // namespace gpt2c

// attention_pages (attention_pages.cuh) with wgmma for pieces of prompts: heads of a multiple of 16
// from 64 to 256, fp16 or bf16, pages of 64 tokens; sm_90a alone.
//
// A sequence of one token in the call is a short piece as there. Any other piece, the last token of
// a prompt too, is a tile of 64 queries (prefill_wide/attention_wide_tile.cuh): one takes as long
// as another behind as many keys. TMA copies tiles of new tokens from the call's rows, and tiles of
// earlier ones page by page. Rows behind the piece's last belong to others: no query of the piece
// sees their keys, and zeros take the place of their values.
//
// All pieces of a table but the last have 64 tokens.
//
// Config and parameters: those of attention_pages, with Warps = 4 and Groups 1; qkvMap of qkv
// X[1,rows,(Heads+2*KvHeads)*HeadDim] and kvMap of kv X[pages*layers*2*KvHeads,64,HeadDim], both in
// boxes of 64 rows. Grid: that of attention_pages; block: AttentionPagesWide<C>::threads; dynamic
// shared: AttentionPagesWide<C>::sharedBytes.
#pragma once

#include "templates/attention/pages/attention_pages.cuh"
#include "templates/attention/parts/attention_store.cuh"
#include "templates/attention/prefill_wide/attention_wide_tile.cuh"

namespace gpt2c {

/// The config of attention_wide_tile.cuh.
template <typename C> struct PagedWideConfig {
  using X = typename C::X;
  static constexpr int Heads = C::Heads, KvHeads = C::KvHeads, HeadDim = C::HeadDim,
                       Window = C::Window, Groups = 1, Stages = C::HeadDim > 128 ? 2 : 3;
};

template <typename C> struct AttentionPagesWide {
  using Wide = AttentionWide<PagedWideConfig<C>>;
  static constexpr int threads = Wide::threads;
  static constexpr int sharedBytes = maxInt(AttentionPages<C>::sharedBytes, Wide::sharedBytes);
  static_assert(C::PageTokens == 64 && C::Warps == 4 && C::Groups == 1 &&
                sizeof(typename C::X) == 2);
};

namespace tile {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// Tiles of a state in pages, and of the rows of all sequences; see AttentionWideCopies.
template <typename C> struct WidePagedPlace {
  const int *table;
  int layer, layers, head; // of keys
  int row;                 // of the call's first token of the sequence

  __device__ __forceinline__ int matrixOf(int page, int part) const {
    return ((page * layers + layer) * 2 + part) * C::KvHeads + head;
  }
  __device__ __forceinline__ int oldMatrix(int part, int t) const {
    return matrixOf(table[t], part);
  }
  __device__ __forceinline__ int oldRow(int) const { return 0; }
  __device__ __forceinline__ int freshMatrix() const { return 0; }
  __device__ __forceinline__ int freshRow(int r) const { return row + r; }
  __device__ __forceinline__ bool isBox(int position) const { return position % 64 == 0; }
  __device__ __forceinline__ int newMatrix(int part, int position) const {
    return matrixOf(table[position / 64], part);
  }
  __device__ __forceinline__ int newRow(int position) const { return position % 64; }
  __device__ __forceinline__ int newRows(int, int count) const { return count; }
  __device__ __forceinline__ typename C::X *newPlace(typename C::X *kv, int part,
                                                     int position) const {
    return kv + ((i64)newMatrix(part, position) * 64 + newRow(position)) * C::HeadDim;
  }
};

#endif

template <typename C>
__device__ __forceinline__ void
attentionPagesWide(const TensorMap &qkvMap, const TensorMap &kvMap, const typename C::X *qkv,
                   typename C::X *kv, typename C::X *out, const int *pieces, const int *tables,
                   float *partial, unsigned *counters, int layer, int layers, int tableStride,
                   float scale, const int *prefixes, const float *prefixParts, int split,
                   int splits, int h, i64 number, typename C::X *shared) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Config = PagedWideConfig<C>;
  using L = AttentionWide<Config>;
  using Place = WidePagedPlace<Config>;
  const bool copies = __shfl_sync(fullWarp, threadIdx.x / 32, 0) == L::consumers / 32;
  AttentionPagesTile<C> mixed({qkv, kv, out, pieces, tables, partial, counters, layer, layers,
                               tableStride, scale, split, splits, h, number, shared, prefixes,
                               prefixParts});
  if (!mixed.locate())
    return;
  const AttentionPiece &piece = mixed.piece;
  if (piece.count == 1 && piece.position == piece.past) {
    if (!copies)
      mixed.attendShort();
    return;
  }
  if (split > 0)
    return;
  __shared__ AttentionWideBarriers<Config> barriers;
  if (threadIdx.x == L::consumers) {
    prefetchMap(qkvMap);
    prefetchMap(kvMap);
    barriers.init();
  }
  __half *queries = alignedKTiles(shared), *ring = queries + L::tileHalves;
  const int before = piece.position - piece.past; // of the call's tokens
  const AttentionWideTiles<Config> tiles(piece.past, before + piece.count, before);
  const Place place = {mixed.head.table, layer, layers, mixed.head.head, piece.row - before};
  __syncthreads();
  waitForPredecessor();
  if (copies) {
    AttentionWideCopies<Config, Place>{qkvMap, kvMap,   kv,   barriers, tiles,
                                       place,  queries, ring, h,        (int)threadIdx.x % 32}
        .run();
    releaseSuccessor();
    return;
  }
  AttentionWideGroup<Config, false> g(barriers, tiles, queries, ring, scale);
  g.attend();
  releaseSuccessor();
  const quantised::AsTheyAre given;
  storeAttention<C::Heads, C::HeadDim>(reinterpret_cast<float(&)[C::HeadDim / 8][4]>(g.o),
                                       g.softmax.sum, out + (i64)place.row * C::Heads * C::HeadDim,
                                       nullptr, g.q0 + g.warp * 16, tiles.seq, h, 0, given);
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c

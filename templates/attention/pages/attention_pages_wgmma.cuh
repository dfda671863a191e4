// attention_pages (attention_pages.cuh) with wgmma for pieces of prompts: heads of 64, fp16 or
// bf16, pages of 64 tokens, no window; sm_90a alone.
//
// A sequence of one token in the call is a short piece as there. Any other piece, the last token of
// a prompt too, is a tile of 64 queries as attention_prefill_wgmma has them
// (attention_wgmma_tile.cuh): one takes as long as another behind as many keys. Groups warpgroups
// share its keys. TMA copies tiles of new tokens from the call's rows, and tiles of earlier ones
// page by page. Rows behind the piece's last belong to others: no query of the piece sees their
// keys, and zeros take the place of their values.
//
// All pieces of a table but the last have 64 tokens.
//
// Config and parameters: those of attention_pages, with Warps = 4 and Groups 2 or 4; qkvMap of
// qkv X[1,rows,(Heads+2*KvHeads)*64] and kvMap of kv X[pages*layers*2*KvHeads,64,64], both in boxes
// of 64 rows. Grid: that of attention_pages; block: 128 * Groups; dynamic shared:
// AttentionPagesWgmma<C>::sharedBytes.
#pragma once

#include "templates/attention/pages/attention_pages.cuh"
#include "templates/attention/prefill_wgmma/attention_wgmma_tile.cuh"

namespace gpt2c {

/// The config of attention_wgmma_tile.cuh.
template <typename C> struct PagedWgmmaConfig {
  using X = typename C::X;
  using Y = __half; // two bytes, whatever X
  static constexpr int Heads = C::Heads, KvHeads = C::KvHeads, KeySplit = C::Groups, Stages = 3;
  static constexpr bool Pairs = false, Causal = true, Mask = false;
};

template <typename C> struct AttentionPagesWgmma {
  static constexpr int threads = 128 * C::Groups;
  static constexpr int sharedBytes =
      maxInt(AttentionPages<C>::sharedBytes, AttentionWgmma<PagedWgmmaConfig<C>>::sharedBytes);
  static_assert(C::HeadDim == 64 && C::PageTokens == 64 && C::Warps == 4 &&
                (C::Groups == 2 || C::Groups == 4) && C::Window == 0 && sizeof(typename C::X) == 2);
};

namespace tile {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// Where tiles of a piece and of what its sequence has before it lie; see StateTiles.
template <typename C> struct PagedTiles {
  using Keys = AttentionWgmmaKeys<C, PagedTiles>;
  static constexpr bool endInZeros = false;
  const int *table;
  int layer, layers, head;     // of keys
  int row;                     // of the call's first token of the sequence
  int position, count;         // of the piece
  int pageOfFirst, pageOfLast; // that the piece writes

  __device__ __forceinline__ int matrixOf(int page, int part) const {
    return ((page * layers + layer) * 2 + part) * C::KvHeads + head;
  }
  __device__ __forceinline__ void locate(const Keys &) {}
  __device__ __forceinline__ int kept() const { return pageOfFirst; }
  __device__ __forceinline__ int oldMatrix(int part, int t) const {
    return matrixOf(table[t], part);
  }
  __device__ __forceinline__ int oldRow(int) const { return 0; }
  __device__ __forceinline__ int freshMatrix(const Keys &) const { return 0; }
  __device__ __forceinline__ int freshRow(int r) const { return row + r; }
  __device__ __forceinline__ i64 firstRow(const Keys &) const { return row; }
  __device__ __forceinline__ bool isBox(const Keys &) const {
    return position % 64 == 0 && count == 64;
  }
  __device__ __forceinline__ int newMatrix(int part) const { return matrixOf(pageOfFirst, part); }
  __device__ __forceinline__ int newRow(const Keys &) const { return 0; }
  __device__ __forceinline__ int newRows(const Keys &) const { return count; }
  __device__ __forceinline__ __half *newPlace(const Keys &k, int part, int r) const {
    const int at = position + r;
    const int page = at / 64 == position / 64 ? pageOfFirst : pageOfLast;
    return k.kv + ((i64)matrixOf(page, part) * 64 + at % 64) * 64;
  }
};

#endif

template <typename C>
__device__ __forceinline__ void
attentionPagesWgmma(const TensorMap &qkvMap, const TensorMap &kvMap, const typename C::X *qkv,
                    typename C::X *kv, typename C::X *out, const int *pieces, const int *tables,
                    float *partial, unsigned *counters, int layer, int layers, int tableStride,
                    float scale, const int *prefixes, const float *prefixParts, int split,
                    int splits, int h, i64 number, typename C::X *shared) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Config = PagedWgmmaConfig<C>;
  using Tiles = PagedTiles<Config>;
  using Tile = AttentionWgmmaTile<Config, quantised::AsTheyAre, Tiles>;
  AttentionPagesTile<C> mixed({qkv, kv, out, pieces, tables, partial, counters, layer, layers,
                               tableStride, scale, split, splits, h, number, shared, prefixes,
                               prefixParts});
  if (!mixed.locate())
    return;
  const bool single = mixed.piece.count == 1 && mixed.piece.position == mixed.piece.past;
  if (single)
    return mixed.attendShort();
  if (split > 0)
    return;
  __shared__ AttentionWgmmaBarriers<Config> barriers;
  __shared__ typename Tile::RowSums rowSums;
  const AttentionPiece &piece = mixed.piece;
  const int before = piece.position - piece.past; // of the call's tokens
  AttentionWgmmaKeys<Config, Tiles> keys(qkvMap, kvMap, reinterpret_cast<__half *>(kv),
                                         {layer, 0, 0, before + piece.count, 0, scale}, barriers);
  keys.takeRole();
  keys.place = {before / 64, h, 0, 0, keys.group, C::Groups};
  const int *table = mixed.head.table;
  keys.at = {table,
             layer,
             layers,
             mixed.head.head,
             piece.row - before,
             piece.position,
             piece.count,
             table[piece.position / 64],
             table[(piece.position + piece.count - 1) / 64]};
  keys.initBarriers();
  keys.locate(piece.past, alignedKTiles(shared));
  const quantised::AsTheyAre given;
  Tile tile({reinterpret_cast<__half *>(out), nullptr, given, nullptr}, keys, rowSums);
  tile.attend();
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c

// append_attention for many queries (prefill), fp16 or bf16, heads of 64, sm_90a alone. Meaning and
// mask as in attention_decode.cuh with Append.
//
// A block computes 64 queries of one head with KeySplit warpgroups, each of which takes every
// KeySplit-th tile of 64 keys, from the last one on; their accumulators are merged in shared
// memory, in order. Four groups may have two times 64 queries between them (attentionPair). A
// warpgroup has TMA fill a ring of Stages tiles of its own, from the new tokens and then from the
// KV state, so that a tile has keys of one kind. Weights are in registers, and queries where there
// is room for them.
//
// While the weights of a tile are computed, the product O += P V of the tile before runs. The row
// maximum of the first tile is kept while exp(score - maximum) fits fp16, of which the row sums
// tell (at most 2^15): a tile needs no maximum then, and neither O nor the row sums are rescaled.
// Else the warp computes the tile's scores again and takes the running maximum.
//
// One group: keys and values come apart, a product waits for its own operand, and as soon as keys
// are multiplied others take their place. Several groups, which have some tiles each, start sooner
// with fewer copies and barriers to set up; the first keys alone come before their values.
//
// Key tiles that no query sees are skipped; only tiles that some query sees in part are masked: the
// first of a causal row, the last of the state, and all where there is a key mask. The tile of the
// block's own tokens goes to the state from shared memory.
//
// Config: X (__half or __nv_bfloat16), Y (X, or of __half signed char: quantised, a scale for each
// query and head or one that is given), Heads, KvHeads, KeySplit, Stages, Pairs (a block may have
// two times 64 queries), Causal, Mask.
// Kernel: qkvMap X[batch,seq,(Heads+2*KvHeads)*64] and kvMap
// X[layers*2*batchMax*KvHeads,context,64] in boxes of 64 rows, kv the state itself, out
// Y[batch,seq,Heads,64], outScale f32[batch,seq,Heads] (null unless it is written), past i32[batch]
// or null, keyMask i32[batch,maskStride] or null, layer, batchMax, context, seq, maskStride, scale,
// backwards (0 or 1: attentionPlace).
// Grid: (Heads, batch, ceil(seq / 64), with four groups at least half of it); block:
// AttentionWgmma<C>::threads; dynamic shared: AttentionWgmma<C>::sharedBytes.
// Bytes: 2 (past + 2 seq) 64 Heads + ...; flops: 4 * 64 Heads (visible pairs) per sequence.
#pragma once

#include "templates/attention/prefill_wgmma/attention_wgmma_tile.cuh"

namespace gpt2c::tile {

template <typename C, typename Given>
__device__ __forceinline__ void
attentionPrefillWgmma(const TensorMap &qkvMap, const TensorMap &kvMap, typename C::X *kv,
                      typename C::Y *out, float *outScale, const Given &given, const int *past,
                      const int *keyMask, int layer, int batchMax, int context, int seq,
                      int maskStride, float scale, int backwards, void *dynamicShared) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using L = AttentionWgmma<C>;
  using Tile = AttentionWgmmaTile<C, Given, StateTiles<C>>;
  __shared__ AttentionWgmmaBarriers<C> barriers;
  __shared__ typename Tile::RowSums rowSums;
  AttentionWgmmaKeys<C, StateTiles<C>> keys(qkvMap, kvMap, reinterpret_cast<__half *>(kv),
                                            {layer, batchMax, context, seq, maskStride, scale},
                                            barriers);
  keys.takeRole();
  if constexpr (L::units == 1)
    keys.place = attentionPlace(backwards, keys.group, C::KeySplit);
  else
    keys.place.b = blockIdx.y;
  // The kernel right before computes qkv and nothing else of this.
  const int held = past != nullptr ? past[keys.place.b] : 0;
  keys.initBarriers();
  keys.locate(held, alignedKTiles(dynamicShared));
  Tile tile({out, outScale, given, keyMask}, keys, rowSums);
  tile.attend();
#else
  __trap();
#endif
}

} // namespace gpt2c::tile

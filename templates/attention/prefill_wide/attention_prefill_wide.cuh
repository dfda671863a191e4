// append_attention for many queries (prefill), fp16 or bf16, heads of a multiple of 16 from 64 to
// 256, causal, sm_90a alone. Meaning as in attention_decode.cuh with Append.
//
// Tiles are those of attention_wide_tile.cuh.
//
// Tiles that no query of the block sees are skipped, with a Window also those before it; only tiles
// that some query sees in part are masked. The tiles of the block's own tokens go to the state from
// shared memory, by the first of the heads that share keys. What the last tile of the state holds
// behind its tokens is whatever was there: it is masked, and its values are zeroed.
//
// Config: X (__half or __nv_bfloat16), Y (X, or of __half signed char: quantised, a scale for each
// query and head or one that is given), Heads, KvHeads, HeadDim, Window, Groups, Stages; SoftCap as
// in score.cuh.
// Kernel: qkvMap X[batch,seq,(Heads+2*KvHeads)*HeadDim] and kvMap
// X[layers*2*batchMax*KvHeads,context,HeadDim] in boxes of 64 rows, kv the state itself, out
// Y[batch,seq,Heads,HeadDim], outScale f32[batch,seq,Heads] (null unless it is written), past
// i32[batch] or null, layer, batchMax, context, seq, scale.
// Grid: (Heads, batch, ceil(seq / (64 Groups))); block: AttentionWide<C>::threads; dynamic shared:
// AttentionWide<C>::sharedBytes.
// Bytes: 2 (past + 2 seq) HeadDim Heads + ...; flops: 4 HeadDim Heads (visible pairs) per sequence.
#pragma once

#include "templates/attention/parts/attention_store.cuh"
#include "templates/attention/prefill_wide/attention_wide_tile.cuh"

namespace gpt2c::tile {

/// Tiles of a state that has a place for each sequence, and of rows of its own; see
/// AttentionWideCopies.
template <typename C> struct WideStatePlace {
  int b, plane, planesOfPart; // this head's keys, and how far behind values are
  int context;

  __device__ __forceinline__ int oldMatrix(int part, int) const {
    return plane + part * planesOfPart;
  }
  __device__ __forceinline__ int oldRow(int t) const { return t * 64; }
  __device__ __forceinline__ int freshMatrix() const { return b; }
  __device__ __forceinline__ int freshRow(int r) const { return r; }
  __device__ __forceinline__ bool isBox(int) const { return true; }
  __device__ __forceinline__ int newMatrix(int part, int) const {
    return plane + part * planesOfPart;
  }
  __device__ __forceinline__ int newRow(int position) const { return position; }
  __device__ __forceinline__ int newRows(int position, int count) const {
    return min(count, context - position);
  }
  __device__ __forceinline__ typename C::X *newPlace(typename C::X *kv, int part,
                                                     int position) const {
    return kv + ((i64)newMatrix(part, position) * context + position) * C::HeadDim;
  }
};

template <typename C, typename Given>
__device__ __forceinline__ void
attentionPrefillWide(const TensorMap &qkvMap, const TensorMap &kvMap, typename C::X *kv,
                     typename C::Y *out, float *outScale, const Given &given, const int *past,
                     int layer, int batchMax, int context, int seq, float scale,
                     void *dynamicShared) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using L = AttentionWide<C>;
  __shared__ AttentionWideBarriers<C> barriers;
  // Causal tiles grow with their index: the longest start first.
  const int h = blockIdx.x, b = blockIdx.y, tileQ = gridDim.z - 1 - blockIdx.z;
  __half *queries = alignedKTiles(dynamicShared), *ring = queries + C::Groups * L::tileHalves;
  if (threadIdx.x == L::consumers) {
    prefetchMap(qkvMap);
    barriers.init();
  }
  // The kernel right before computes qkv and nothing else of this.
  const int held = past != nullptr ? past[b] : 0;
  __syncthreads();
  const AttentionWideTiles<C> tiles(__shfl_sync(fullWarp, held, 0), seq, tileQ * 64 * C::Groups);
  waitForPredecessor();
  if (__shfl_sync(fullWarp, threadIdx.x / 32, 0) == L::consumers / 32) {
    const int planesOfPart = batchMax * C::KvHeads,
              plane = (layer * 2 * batchMax + b) * C::KvHeads + h / (C::Heads / C::KvHeads);
    const WideStatePlace<C> place = {b, plane, planesOfPart, context};
    AttentionWideCopies<C, WideStatePlace<C>>{
        qkvMap, kvMap, kv, barriers, tiles, place, queries, ring, h, (int)threadIdx.x % 32}
        .run();
    releaseSuccessor();
    return;
  }
  AttentionWideGroup<C, true> g(barriers, tiles, queries, ring, scale);
  g.attend();
  releaseSuccessor();
  storeAttention<C::Heads, C::HeadDim>(reinterpret_cast<float(&)[C::HeadDim / 8][4]>(g.o),
                                       g.softmax.sum, out, outScale, g.q0 + g.warp * 16, seq, h, b,
                                       given);
#else
  __trap();
#endif
}

} // namespace gpt2c::tile

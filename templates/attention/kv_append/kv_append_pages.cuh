// kv_append into a state of bytes in pages, kv[pages,layers,2,KvHeads,PageTokens,HeadDim + 4]: of
// the PageTokens * (HeadDim + 4) bytes of a head the rows come first, then their scales in f32.
//   row position % PageTokens of page tables[table, position / PageTokens] = k, v of qkv[row]
// Pieces {row, count, position, table} are those of attention_pages.cuh.
//
// Config: X (qkv: float, __half or __nv_bfloat16), Kv (signed char or Fp8), HeadDim (a multiple of
// 4), Heads, KvHeads, PageTokens, Threads. Kernel: qkv X[rows,Heads+2*KvHeads,HeadDim], kv Kv,
// pieces i32[pieces,4], tables i32[sequences,tableStride], layer, layers, tableStride.
// Grid: (tokens of a piece, pieces); block: Threads.
// Bytes: tokens 2 KvHeads HeadDim (sizeof(X) + 1).
#pragma once

#include "templates/attention/kv_append/kv_append.cuh"

namespace gpt2c::tile {

template <typename C>
__device__ __forceinline__ void kvAppendPages(const typename C::X *qkv, typename C::Kv *kv,
                                              const int *pieces, const int *tables, int layer,
                                              int layers, int tableStride, int token, i64 number) {
  using Kv = typename C::Kv;
  constexpr i64 headElements = (i64)C::PageTokens * kvRow<Kv>(C::HeadDim);
  constexpr int queries = C::Heads * C::HeadDim, width = queries + 2 * C::KvHeads * C::HeadDim;
  const int4 piece = reinterpret_cast<const int4 *>(pieces)[number]; // row, count, position, table
  if (token >= piece.y)
    return;
  const int position = piece.z + token, at = position % C::PageTokens;
  const i64 page = tables[(i64)piece.w * tableStride + position / C::PageTokens];
  Kv *block = kv + (page * layers + layer) * 2 * C::KvHeads * headElements;
  const typename C::X *from = qkv + (i64)(piece.x + token) * width + queries;
  waitForPredecessor();
  releaseSuccessor();
  for (int row = threadIdx.x / 32; row < 2 * C::KvHeads; row += C::Threads / 32) {
    Kv *head = block + row * headElements;
    storeQuantisedRow<C::HeadDim>(head + at * C::HeadDim,
                                  kvScales(head, C::PageTokens, C::HeadDim) + at,
                                  from + row * C::HeadDim);
  }
}

} // namespace gpt2c::tile

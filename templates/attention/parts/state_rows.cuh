// Where decode kernels find the keys and values of a head: those of a sequence one behind the
// other, or with C::PageTokens > 0 in pages of so many tokens.
//
//   kv[layers,2,batchMax,KvHeads,context,HeadDim]
//   kv[pages,layers,2,KvHeads,PageTokens,HeadDim], of which page tables[b,i] has tokens i PageTokens
//   and on of sequence b
//
// In a state of bytes (kv_append.cuh) the scales of a head follow its rows, in a page those of the
// page.
//
// With pages AttentionSizes has the number of layers in the place of batchMax, the tokens that a
// row of `tables` has pages for as the context, and its stride as that of the mask. A sequence
// whose first page is negative is nobody's: it has no past, and nothing is stored for it.
#pragma once

#include "templates/attention/kv_append/kv_append.cuh"
#include "templates/attention/parts/attention_sizes.cuh"

namespace gpt2c {

/// Of one sequence's keys (part 0) and values (1) of a head.
template <typename C, bool Paged = (C::PageTokens > 0)> struct StateRows {
  using Kv = typename C::Kv;
  Kv *heads[2]; // rows of position 0, named by constants alone: they are registers
  int context;

  /// `tables` are those of pages.
  __device__ __forceinline__ void locate(Kv *kv, const int *, const AttentionSizes &sizes, i64 b,
                                         int h) {
    context = sizes.context;
#pragma unroll
    for (int part = 0; part < 2; part++)
      heads[part] = kv + kvOffset(sizes.layer, part, b, h, sizes.batchMax, C::KvHeads,
                                  sizes.context, kvRow<Kv>(C::HeadDim));
  }
  /// The page of a position that the state has room for; negative: nothing may be stored there.
  __device__ __forceinline__ int pageOf(int) const { return 0; }
  /// Row `position`, which is in `page`.
  __device__ __forceinline__ Kv *row(int part, int, int position) const {
    return (part == 0 ? heads[0] : heads[1]) + (i64)position * C::HeadDim;
  }
  /// The scale of a row of bytes.
  __device__ __forceinline__ float *scale(int part, int, int position) const {
    return kvScales(part == 0 ? heads[0] : heads[1], context, C::HeadDim) + position;
  }
};

template <typename C> struct StateRows<C, true> {
  using Kv = typename C::Kv;
  static constexpr i64 headElements = (i64)C::PageTokens * kvRow<Kv>(C::HeadDim);
  Kv *heads[2]; // in page 0
  const int *table;
  i64 pageElements;

  __device__ __forceinline__ void locate(Kv *kv, const int *tables, const AttentionSizes &sizes,
                                         i64 b, int h) {
    table = tables + b * sizes.maskStride;
    pageElements = (i64)sizes.batchMax * 2 * C::KvHeads * headElements;
#pragma unroll
    for (int part = 0; part < 2; part++)
      heads[part] = kv + ((i64)(sizes.layer * 2 + part) * C::KvHeads + h) * headElements;
  }
  __device__ __forceinline__ int pageOf(int position) const {
    return table[position / C::PageTokens];
  }
  __device__ __forceinline__ Kv *row(int part, int page, int position) const {
    return (part == 0 ? heads[0] : heads[1]) + page * pageElements +
           position % C::PageTokens * C::HeadDim;
  }
  __device__ __forceinline__ float *scale(int part, int page, int position) const {
    return kvScales((part == 0 ? heads[0] : heads[1]) + page * pageElements, C::PageTokens,
                    C::HeadDim) +
           position % C::PageTokens;
  }
};

/// The pages of what a warp reads in turn: pieces of the state that lie in one page each, `Step`
/// positions from one to the next. Each lane has the page of a piece, so that none is waited for
/// when its turn comes.
template <typename C, int Step, bool Paged = (C::PageTokens > 0)> struct PagesAhead {
  __device__ __forceinline__ void start(const StateRows<C> &, const AttentionSizes &, int) {}
  /// Of the piece at `position`, no smaller than that of the call before; all lanes call.
  __device__ __forceinline__ int of(int) { return 0; }
};

template <typename C, int Step> struct PagesAhead<C, Step, true> {
  const int *table;
  int last;       // column of the table
  int from, page; // this lane's is that of position from + lane * Step

  __device__ __forceinline__ void start(const StateRows<C> &rows, const AttentionSizes &sizes,
                                        int position) {
    table = rows.table;
    last = sizes.context / C::PageTokens - 1;
    load(position);
  }
  __device__ __forceinline__ int of(int position) {
    if (position >= from + 32 * Step)
      load(position);
    return __shfl_sync(fullWarp, page, (position - from) / Step);
  }

private:
  __device__ __forceinline__ void load(int position) {
    from = position;
    page = table[min((from + (int)threadIdx.x % 32 * Step) / C::PageTokens, last)];
  }
};

} // namespace gpt2c

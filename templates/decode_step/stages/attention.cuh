// append_attention of one new token a sequence as a stage of a persistent kernel: split keys.
//   out[b,h,:] = sum_j softmax_j(scale * q . k_j) v_j over the keys j of the state and the new one
//
// A unit is one of Splits ranges of the keys of one head of one sequence. Keys and values are on
// their way before q is waited for. The unit whose range holds the new token takes its key and
// value from qkv and appends them to the state. The consumer merges the parts (see
// stages/linear.cuh).
//
// With fp16 a warp takes 16 keys at a time and multiplies by mma.m16n8k16, straight from the
// registers that its loads fill: the order of the dimensions is free in q k^T, that of keys and
// columns in p v.
//
// Config: AttentionStageConfig. Record: AttentionRecord. Units: Rows * Heads * Splits. Bytes: 2
// keys HeadDim Heads sizeof(X) a row; flops: 4 keys HeadDim Heads a row.
#pragma once

#include "templates/decode_step/stages/attention_floats.cuh"
#include "templates/decode_step/stages/attention_halves.cuh"

namespace gpt2c::tile {
#if __CUDA_ARCH__ >= 900

template <typename C, typename B>
__device__ __forceinline__ void attentionStage(B &block, const persistent::Record &record) {
  const auto &attention = record.as<persistent::AttentionRecord>();
  static_assert(persistent::Parts<C>::bytes <= B::Config::ReduceBytes);
  if constexpr (sizeof(typename C::X) == 2)
    attentionHalves<C>(block, attention);
  else
    attentionFloats<C>(block, attention);
}

/// Brings this block's keys and values into L2, from the loading warp. A row's number of keys may
/// be that of the step before: what is missed then is one key.
template <typename C, typename B>
__device__ __forceinline__ void attentionPrefetch(const B &block,
                                                  const persistent::Record &record) {
  using namespace persistent;
  const AttentionRecord<Words> &attention = record.as<AttentionRecord>();
  using X = typename C::X;
  const int units = attention.stage.units.count();
  for (int unit = attention.stage.units.first() + (int)threadIdx.x % 32 / 2 * block.blocks;
       unit < units; unit += 16 * block.blocks) {
    const KeyRange<C> range(block, attention, unit);
    const unsigned bytes = (range.last - range.first) * C::HeadDim * (int)sizeof(X);
    const X *from = attention.kv.as<const X>() + range.keys +
                    (threadIdx.x % 2 ? range.toValues : 0) + (i64)range.first * C::HeadDim;
    if (bytes > 0)
      prefetchBulk(from, bytes);
  }
}

#endif
} // namespace gpt2c::tile

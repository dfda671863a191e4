// Where tokens lie in the KV state, dtype[layers, 2, max_batch, heads, max_context, head_dim]. In
// an int8 or fp8 state a row has 4 bytes more, for its scale in f32: the last dimension is head_dim
// + 4, and of the bytes of a head of a sequence the max_context rows come first, then their scales.
// So it is in pages, with the tokens of a page in the place of the context.
#pragma once

#include "runtime/plan/PlanFile.h"

#include <cstdint>

namespace gpt2c::rt {

/// What Arg.index says of an I32 argument, where it is about the layers of the state: the number of
/// the one that the step has, how many a page has, or the number of one that it only fetches ahead
/// of its use, if it is given a state. A device with some of the layers counts from its first.
enum class LayerArg : int { None = 0, Layer, Layers, Ahead };

/// `rows` runs of `bytes` bytes, the first at `offset` of the state, each `pitch` after the last.
struct KvRuns {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t pitch = 0;
  uint64_t rows = 0;
};

/// Bytes of the scale of a row of a state in that type; 0: rows have none. As kvScaleBytes
/// (ir/ops/AppendAttention.h) of the compiler's table of formats.
constexpr int64_t kvScaleBytes(plan::DType dtype) {
  return dtype == plan::DType::I8 || dtype == plan::DType::F8E4M3 ? 4 : 0;
}
/// Whether rows are bytes with a scale.
inline bool isQuantised(const plan::KvPlanT &kv) { return kvScaleBytes(kv.dtype) > 0; }
/// The last dimension of the state, whose rows are of bytes where they have a scale.
inline int64_t kvRowElements(const plan::KvPlanT &kv) {
  return int64_t(kv.head_dim) + kvScaleBytes(kv.dtype);
}

/// Positions 0 to tokens - 1 of the first `batch` sequences in a layer: one run for each head of
/// each sequence, in the order of a tensor [batch, heads, tokens, head_dim]. `part` is Key or
/// Value. Scales are not among them.
inline KvRuns kvRuns(const plan::KvPlanT &kv, int layer, plan::KvPart part, int64_t batch,
                     int64_t tokens) {
  uint64_t row = uint64_t(kv.head_dim) * dtypeBytes(kv.dtype);
  KvRuns runs;
  runs.pitch = uint64_t(kv.max_context) * uint64_t(kvRowElements(kv)) * dtypeBytes(kv.dtype);
  runs.bytes = uint64_t(tokens) * row;
  runs.rows = uint64_t(batch) * uint64_t(kv.heads);
  runs.offset = (uint64_t(layer) * 2 + (part == plan::KvPart::Value)) * uint64_t(kv.max_batch) *
                uint64_t(kv.heads) * runs.pitch;
  return runs;
}

} // namespace gpt2c::rt

// How ONNX Runtime's Attention and MultiHeadAttention hide keys. Queries are [b, h, s, d], keys
// [b, h, total, d], scores [b, h, s, total].
#pragma once

#include "frontend/NodeLowering.h"

namespace gpt2c::onnxops {

/// Adds `mask_filter_value` to the scores of hidden keys; `mask` may be null. Its forms: 0 and 1
/// for each key [b, total] or for each query and key [b, s, total]; the number of visible keys [b];
/// end and start of the visible keys [2 b].
Value *maskKeys(NodeLowering &n, Value *scores, Value *mask, Value *q, Value *k);

/// Query i sees key j when j <= past + i, where past = total - s; other scores become the lowest
/// finite number.
Value *maskFuture(NodeLowering &n, Value *scores, Value *q, Value *k);

} // namespace gpt2c::onnxops

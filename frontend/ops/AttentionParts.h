// Pieces that the attention operators of ONNX and of ONNX Runtime share.
#pragma once

#include "frontend/NodeLowering.h"

namespace gpt2c::onnxops {

/// [b, s, heads * d] -> [b, s, heads, d]; another rank or a width that the heads do not divide is
/// the model's error.
Value *headsOfTokens(NodeLowering &n, Value *x, int64_t heads);
/// [b, s, heads * d] -> [b, heads, s, d], with the same error.
Value *splitHeads(NodeLowering &n, Value *x, int64_t heads);
/// [b, h, s, d] -> [b, s, h * d]
Value *joinHeads(NodeLowering &n, Value *x);
/// [b, shared, s, d] -> [b, heads, s, d]: each head serves a group of heads / shared neighbours.
Value *repeatHeads(NodeLowering &n, Value *x, int64_t heads);
/// bound tanh(x / bound); x where `bound` is 0.
Value *softcap(NodeLowering &n, Value *x, double bound);
/// The scores where `visible`, else -inf.
Value *hideScores(NodeLowering &n, Value *scores, Value *visible);
/// Softmax over the last axis, zeros in rows that are all -inf.
Value *softmaxOrZeros(NodeLowering &n, Value *scores);

/// (x1, x2) -> (cos x1 - sin x2, sin x1 + cos x2) for pairs (x1, x2) of the first 2 r elements of
/// the last axis: neighbours when `interleaved`, else element i and element r + i; the elements
/// behind them stay. `cos` and `sin` broadcast against x[..., :r].
Value *rotate(NodeLowering &n, Value *x, Value *cos, Value *sin, int64_t r, bool interleaved);
/// The rows of a table [positions, r] at the ids.
Value *tableRows(NodeLowering &n, Value *table, Value *ids);

} // namespace gpt2c::onnxops

// What the attention recogniser and the KV transform find out by probing.
#pragma once

#include "passes/Probe.h"
#include "passes/Remark.h"

namespace gpt2c {

/// Where the elements of a keys, values or queries tensor [batch, heads, tokens, head_dim] come
/// from:
///   element (b, h, t, d) = factor * source[b, t - past, offset + h * head_dim + d], t >= past
///                        = factor * pastSource[.., b, h, t, d],                     t < past
struct HeadLayout {
  Value *source = nullptr; // [batch, seq, width]
  int64_t offset = 0;
  double factor = 1;
  int64_t heads = 0, headDim = 0;
  /// [batch, heads, past, head_dim], or [2, batch, heads, past, head_dim] of which part 0 or 1 is
  /// taken; null: none.
  Value *pastSource = nullptr;
  int64_t pastPart = -1; // -1: pastSource has rank 4
};

/// Finds the layout of `v` by running the copies behind it on numbered elements. `transposed`: v is
/// [batch, heads, head_dim, tokens]. None with a reason in `why` when it is something else.
std::optional<HeadLayout> probeHeads(const Function &f, Value *v, bool transposed, Obstacle &why);

/// How scores [batch, heads, query, key] become probabilities:
///   softmax(scale * scores + biasScale * bias) over the visible keys.
struct MaskedSoftmax {
  double scale = 1;
  bool causal = false;
  Value *keyMask = nullptr; // [batch, key], 0 hides; an argument of the function
  /// Any other mask: a value of the graph that broadcasts to the scores. A bool hides where it is
  /// false.
  Value *bias = nullptr;
  double biasScale = 1;
};

/// Classifies the sub-graph between `scores` and `probabilities` by running it at several small
/// sizes, and at one where its largest constant (a window, the side of a mask buffer) shows: up to
/// 8192 keys, or 131072 where the graph has a past. What is neither no mask, causal nor padding is
/// looked for in one value that is added to the scores or selects among them.
std::optional<MaskedSoftmax> probeMaskedSoftmax(const Function &f, Value *scores,
                                                Value *probabilities, Obstacle &why);

/// The key mask of `mask` in a type that attention reads: a bool where it is neither that nor i32
/// or i64. Null when there is none.
llvm::Expected<Value *> keyMaskOperand(Builder &b, const MaskedSoftmax &mask);

/// The bias of `mask`, which must have one, as an addend [b, H, s, t] of the scores.
llvm::Expected<Value *> scoreBias(Builder &b, const MaskedSoftmax &mask, DType dtype);

/// The one matrix product from which `probabilities` is computed, apart from masks; null when there
/// is none or several. Stops at matrix products and linear ops.
Op *scoreProduct(Value *probabilities);

} // namespace gpt2c

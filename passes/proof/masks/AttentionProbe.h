// What the attention recogniser and the KV transform find out by probing.
#pragma once

#include "passes/Remark.h"
#include "passes/proof/bounds/ScorePath.h"
#include "passes/proof/masks/Probe.h"

#include "llvm/ADT/SmallBitVector.h"

#include <cmath>

namespace gpt2c {

/// Where the elements of a keys, values or queries tensor [batch, heads, tokens, head_dim] come
/// from:
///   element (b, h, t, d) = factor * source[b, t - past, offset + h / group * head_dim + d], t >=
///   past
///                        = factor * pastSource[.., b, h / group, t, d],                     t <
///                        past
struct HeadLayout {
  /// [batch, seq, width], or of a norm of heads [batch, seq, heads, head_dim].
  Value *source = nullptr;
  int64_t offset = 0;
  double factor = 1;
  int64_t heads = 0, headDim = 0;
  /// Heads next to each other that are copies of one.
  int64_t group = 1;
  int64_t sourceHeads() const { return heads / group; }
  /// [batch, heads, past, head_dim], or [2, batch, heads, past, head_dim] of which part 0 or 1 is
  /// taken; null: none.
  Value *pastSource = nullptr;
  int64_t pastPart = -1; // -1: pastSource has rank 4
  /// A cast among the copies to a type that does not hold every value of the source; null: none.
  Op *rounding = nullptr;

  /// Where there is one head, which products broadcast to those of `queries`: copies of it.
  void broadcastTo(const HeadLayout &queries) {
    if (heads == 1)
      heads = group = queries.heads;
  }
};

/// Finds the layout of `v` by following the copies behind it (Element.h), which shows it for every
/// length and number of sequences. `transposed`: v is [batch, heads, head_dim, tokens]. None with a
/// reason in `why` when it is something else.
std::optional<HeadLayout> probeHeads(const Function &f, Value *v, bool transposed, Obstacle &why);

/// How scores [batch, heads, query, key] become probabilities:
///   softmax(scale * scores + bias) over the visible keys.
struct MaskedSoftmax {
  double scale = 1;
  bool causal = false;
  int64_t window = 0;       // causal: of the keys up to a query's own the last so many; 0: all
  Value *keyMask = nullptr; // [batch, key], 0 hides; an argument of the function
  /// Any other mask: of these steps those in `biased` give the bias, in their order; those that are
  /// scales scale it. What selects hides where it puts a fill value.
  llvm::SmallVector<ScoreStep, 4> steps;
  llvm::SmallBitVector biased;
  /// It is so as long as no score is beyond this: where finite numbers hide.
  double highestScore = INFINITY;
  bool limited = false; ///< by limits that these scores do not come near

  bool hasBias() const { return biased.any(); }
  /// Whether the bias is made of `v`.
  bool readsAsBias(const Value *v) const;
};

/// Proves what the sub-graph between `scores` and `probabilities` is, or says in `why` which op or
/// which value of the mask keeps it from being one. The ops on the way are steps of a ScorePath;
/// what they add, multiply and select by is evaluated as MaskSizes says and must be no mask, causal
/// or a padding mask that each key is told by alone. Other masks are a bias. `context`: tokens that
/// were asked for, 0 where none. Without `windows` one is a bias like any other mask. Where it is
/// no bias, `why` is empty.
std::optional<MaskedSoftmax> probeMaskedSoftmax(const Function &f, Value *scores,
                                                Value *probabilities, int64_t context, bool windows,
                                                Obstacle &why);

/// Whether no score can be beyond `mask.highestScore`, as the weights tell; else why not.
bool holdsForScores(const Function &f, const MaskedSoftmax &mask, Value *scores, Obstacle &why);

/// The key mask of `mask` in a type that attention reads: a bool where it is neither that nor i32
/// or i64. Null when there is none.
llvm::Expected<Value *> keyMaskOperand(Builder &b, const MaskedSoftmax &mask);

/// The bias of `mask`, which must have one, as an addend [b, H, s, t] of the scores.
llvm::Expected<Value *> scoreBias(Builder &b, const MaskedSoftmax &mask, DType dtype);

/// The one matrix product from which `probabilities` is computed, apart from masks; null when there
/// is none or several. Stops at matrix products and linear ops.
Op *scoreProduct(Value *probabilities);

} // namespace gpt2c

// The rows of the last token of each sequence: @prefill computes its head on them alone.
#pragma once

#include "ir/Function.h"

#include "llvm/Support/Error.h"

namespace gpt2c {

/// last(f(x, ...)) = f(last(x), ...) where nothing reads other rows: last-token rows commute with
/// row-wise ops, so that the head runs on one row per sequence. Where they also sink below sums,
/// all of the last layer behind its attention does.
llvm::Error sinkLastRows(Function &f, bool belowSums);

/// The logits of the last token of each sequence, [batch, vocabulary]; `takesLast` is what takes
/// the last row in front of them in the exported graph, null where there is none. `length`: how
/// many of the new tokens of each sequence are not padding.
llvm::Expected<Value *> lastLogits(Function &f, Value *logits, Op *takesLast, Value *length);

} // namespace gpt2c

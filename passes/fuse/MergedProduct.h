// Values that one product computes, or can compute, beside each other.
#pragma once

#include "passes/Rewrite.h"

namespace gpt2c {

/// Columns first, first + step, .. of a tensor, along its last axis.
struct Columns {
  Value *source;
  int64_t first, step, count;
  bool operator==(const Columns &) const = default;
};

/// What `v` is a slice of columns of; all columns of `v` where it is none. Without columns where
/// their number is not constant.
Columns columnSlice(Value *v);

/// A tensor of which `parts` are the columns, all of them and in their order: what they are slices
/// of, or one product in place of those they are, or of which they are all that is read. Null where
/// they are neither.
llvm::Expected<Value *> besideEachOther(llvm::ArrayRef<Value *> parts, Builder &b);

/// linear(x, w[columns], b[columns]) of a linear; null where it has an epilogue or its weights are
/// not constant.
llvm::Expected<Value *> productOfColumns(Value *product, llvm::ArrayRef<int64_t> columns,
                                         Builder &b);

} // namespace gpt2c

// Values that one product computes, or can compute, beside each other.
#pragma once

#include "passes/Rewrite.h"

namespace gpt2c {

/// A tensor of which `parts` are the columns, all of them and in their order: what they are slices
/// of, or one product in place of those they are. Null where they are neither.
llvm::Expected<Value *> besideEachOther(llvm::ArrayRef<Value *> parts, Builder &b);

} // namespace gpt2c

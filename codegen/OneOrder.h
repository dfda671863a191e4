// Whether the versions of a function treat a row alike, as a batch-invariant plan promises.
#pragma once

#include "plan_generated.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <memory>

namespace gpt2c {

/// Fails where versions of a function do not treat a row alike: a step of one is, in another, no
/// step of the same kernel over a grid of the same form, and no product of the same order of sums.
llvm::Error checkOneOrder(llvm::ArrayRef<std::unique_ptr<plan::FunctionT>> versions);

} // namespace gpt2c

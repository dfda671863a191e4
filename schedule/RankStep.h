// A decode step of ranks as the persistent kernels have it: sums over ranks are part of the
// products in front of them.
#pragma once

#include "ir/Function.h"

#include <memory>

namespace gpt2c {

/// A copy of `decode`, what a rank runs, in which
///   all_reduce(linear(x, w)) + bias + residual  is  linear(x, w, bias, residual)
/// whose rank adds up the products of all. all_gather stays: columns of the logits are the rank's.
/// Null: a sum over ranks has no such form, or there is none.
std::unique_ptr<Function> stepOfRank(const Function &decode);

} // namespace gpt2c

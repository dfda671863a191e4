// Ops that compute what sines and cosines are taken of.
#pragma once

#include "ir/Function.h"

#include "llvm/ADT/DenseSet.h"

namespace gpt2c {

using OpSet = llvm::DenseSet<const Op *>;

/// The sines and cosines of `f` whose angles come from integers and constants alone, as those of a
/// rotary embedding do, and all ops behind them with floating-point results, constants included.
OpSet angleOps(const Function &f);

/// angleOps, cut off from the rest of `f`: other ops read their results through casts, which are no
/// part of the set, and no constant of the set has a use outside.
llvm::Expected<OpSet> separateAngles(Function &f);

} // namespace gpt2c

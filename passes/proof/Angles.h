// Ops that keep their types in a plan of another precision: first, what sines and cosines are taken
// of.
#pragma once

#include "ir/Decisions.h"

namespace gpt2c {

/// The sines and cosines of `f` whose angles come from integers and constants alone, as those of a
/// rotary embedding do, and all ops behind them with floating-point results, constants included.
OpSet angleOps(const Function &f);

/// Whether `op` is a decision by results of `ops` alone.
bool decidesBy(const Op &op, const OpSet &ops);

/// `ops` cut off from the rest of `f`: other ops read their results through casts, which are no
/// part of the set, and no constant of the set has a use outside. Decisions read them as they are.
llvm::Expected<OpSet> separate(Function &f, OpSet ops);

} // namespace gpt2c

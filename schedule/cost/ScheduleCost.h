// What a function's launches take, to choose between two forms of it.
#pragma once

#include "schedule/Schedule.h"
#include "schedule/cost/Bounds.h"

#include "llvm/ADT/DenseMap.h"

namespace gpt2c {

/// Estimated microseconds of a group's launches, at the most rows there can be: a product as its
/// kernel's model has it, never less than its weights take from memory, attention as
/// AttentionCost.h has it, all else by what it reads and writes. 0: there is no launch; infinite:
/// there is no kernel.
double microsecondsOf(const Group &group, const SymbolBounds &bounds, const TargetRates &rates);
/// The same of all groups.
double microsecondsOf(const Schedule &schedule, const SymbolBounds &bounds,
                      const TargetRates &rates);

/// The same of each product with weights: of an MLP in one launch both have their part of it by the
/// bytes of their weights, and what norms and `quantize` take by themselves counts for the products
/// that read them, in equal parts.
llvm::DenseMap<const Op *, double>
productMicroseconds(const Schedule &schedule, const SymbolBounds &bounds, const TargetRates &rates);

} // namespace gpt2c

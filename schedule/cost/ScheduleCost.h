// What a function's launches take, to choose between two forms of it.
#pragma once

#include "schedule/Schedule.h"
#include "schedule/cost/Bounds.h"

#include "llvm/ADT/DenseMap.h"

namespace gpt2c {

/// Estimated microseconds of all launches but attention's, at the most rows there can be: products
/// as their kernels' models have them, never less than their weights take from memory, all else by
/// what it reads and writes. Good for comparing forms of one function, whose attention is the same.
/// Infinite: a group has no kernel.
double microsecondsOf(const Schedule &schedule, const SymbolBounds &bounds,
                      const TargetRates &rates);

/// The same of each product with weights: of an MLP in one launch both have their part of it by the
/// bytes of their weights, and what norms and `quantize` take by themselves counts for the products
/// that read them, in equal parts.
llvm::DenseMap<const Op *, double>
productMicroseconds(const Schedule &schedule, const SymbolBounds &bounds, const TargetRates &rates);

} // namespace gpt2c

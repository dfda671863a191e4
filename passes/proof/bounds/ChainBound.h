// How far a chain of functions of one value may be from a formula between two points at which it
// was compared: bounds of value and slope over the whole interval, op by op.
#pragma once

#include "ir/Function.h"

#include <optional>

namespace gpt2c {

/// A formula with |f''| at most 1.2 and at most 4 / x^2, and a slope that changes by 2 exp(-x / 2)
/// at most beyond x >= 8 either way, as GELU and SiLU have it.
struct SmoothFunction {
  double (*value)(double);
  double (*slope)(double);
};

/// A point between two of `points`, which are sorted, near which `root` as a function of `x` may be
/// farther than tolerance * |x| from `formula`; none where it nowhere is. `distances` are those at
/// the points. The chain consists of sums, products, quotients, powers with a constant exponent,
/// roots, casts, tanh, erf, sigmoid and exp of x and scalar constants.
std::optional<double> unboundedBetween(Value *root, Value *x, const SmoothFunction &formula,
                                       llvm::ArrayRef<double> points,
                                       llvm::ArrayRef<double> distances, double tolerance);

} // namespace gpt2c

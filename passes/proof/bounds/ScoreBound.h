// How large attention scores can become, from the weights alone.
#pragma once

#include "passes/Remark.h"

#include <optional>

namespace gpt2c {

/// Bounds of every element of a value, whatever the graph is given.
struct Interval {
  double low, high;
  double magnitude() const;
};

/// A range that the elements of `v` never leave: infinite ends where no bound is known, with the
/// reason in `why`. Of scores q k^T: queries and keys are rows W u + c of products behind norms, of
/// n elements with |u| <= sqrt(n), and
///   |q k| <= n |Wq^T Wk| + sqrt(n) (|Wq^T ck| + |Wk^T cq|) + |cq ck|
/// for each head. The spectral norm is bounded through the trace of a high power. Where a rotation
/// or a norm of heads stands in between, it is |q| |k| at most, with
///   |W u + c| <= sqrt(n) |W| + |c|
/// and a rotation that stretches by the largest radius in its tables. Keys that the graph is given
/// are taken for keys that it has made before. Bounds are 2 % wider than that, for the rounding of
/// the graph.
Interval rangeOf(const Function &f, Value *v, Obstacle &why);

/// At least the largest eigenvalue of P Q for symmetric positive semidefinite P and Q [n, n], at
/// most 7 % more for n up to 64.
double largestEigenvalue(llvm::ArrayRef<double> p, llvm::ArrayRef<double> q, int64_t n);

} // namespace gpt2c

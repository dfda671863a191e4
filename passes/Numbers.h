// Counts of elements that a precision does not hold.
#pragma once

#include "ir/Tensor.h"

#include <string>

namespace gpt2c {

class Op;

struct NumberCounts {
  int64_t nan = 0, infinite = 0;
  /// Finite elements that half precision rounds to infinity, and the largest magnitude of all.
  int64_t aboveHalf = 0;
  double largest = 0;
};

/// Of a tensor of any floating-point type, on all cores.
NumberCounts countNumbers(const Tensor &t);

/// Whether an element of a tensor of f16 is infinite, on all cores.
bool hasInfinity(const Tensor &half);

/// "'h.0.mlp.c_fc.weight'" or, of a constant without a name, "a constant of node '/h.0/MatMul'".
std::string constantName(const Op &constant);

} // namespace gpt2c

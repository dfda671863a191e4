// Counts of elements that a precision does not hold.
#pragma once

#include "ir/Tensor.h"

#include <string>

namespace gpt2c {

class Op;

struct NumberCounts {
  int64_t nan = 0, infinite = 0;
  double largest = 0; ///< magnitude of the finite elements
};

/// Of a tensor of any floating-point type, on all cores.
NumberCounts countNumbers(const Tensor &t);

/// Whether an element of a tensor of f16 or bf16 is infinite, on all cores.
bool hasInfinity(const Tensor &narrow);

/// Finite elements of `wide` that are infinite in `narrow`, the same in f16 or bf16; on all cores.
int64_t countOverflows(const Tensor &wide, const Tensor &narrow);

/// What an f16 tensor loses to the few digits that it has below its least normal number, 2^-14.
struct Underflow {
  int64_t below = 0;   ///< elements that are not 0 in the wide tensor and below 2^-14 in the narrow
  double relative = 0; ///< norm(narrow - wide) / norm(wide)
};
/// None where at least half of the elements are normal: the error is that of rounding then, at most
/// sqrt(2) 2^-11. On all cores.
Underflow underflowOf(const Tensor &wide, const Tensor &narrow);

/// "'h.0.mlp.c_fc.weight'" or, of a constant without a name, "a constant of node '/h.0/MatMul'".
std::string constantName(const Op &constant);

} // namespace gpt2c

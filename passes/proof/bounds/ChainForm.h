// Which ops a recognised chain may consist of. Equal values on sample points prove a formula only
// where nothing in the chain can change course between them: sums, products, powers and the
// functions of the formula, but no min, max, where, abs or rounding.
#pragma once

#include "ir/Function.h"

namespace gpt2c {

/// +, -, *, /, negation, reciprocals, square roots, powers with a constant exponent, and casts that
/// keep every value of `dtype`.
bool isAlgebraic(const Op &op, DType dtype);

/// The first of `chain` that is no constant, not algebraic and not one of `others`; null when there
/// is none.
const Op *foreignOp(llvm::ArrayRef<Op *> chain, DType dtype, llvm::ArrayRef<OpCode> others);

} // namespace gpt2c

// Decisions by numbers that come from lengths, positions and masks alone: a window written as
// `cast(q - k, f16) * 0.2 < 1`, a switch at a length.
//
// Which of two results such an op gives may hang on rounding: 5 * 0.19995 is 1 in f16 and below 1
// in single precision. What a graph means is what the type of each of its values makes of it. So
// these values keep their types in plans of another precision, and in double precision too.
#pragma once

#include "ir/Function.h"

#include "llvm/ADT/DenseSet.h"

namespace gpt2c {

using OpSet = llvm::DenseSet<const Op *>;

/// Whether `op` makes steps of floating-point numbers: a comparison, a cast to integers, floor.
bool isDecision(const Op &op);

/// All ops with floating-point results, constants included, behind the decisions among `ops`. Of a
/// decision that reads data, by an argument, a matrix product or a norm, there are none; values
/// that `isGiven` says so of are arguments.
OpSet decidingOps(llvm::ArrayRef<const Op *> ops,
                  llvm::function_ref<bool(const Value *)> isGiven = {});
OpSet decidingOps(const Function &f);

} // namespace gpt2c

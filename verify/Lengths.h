// Numbers in an exported graph at which it may change its course.
#pragma once

#include "ir/Function.h"

namespace gpt2c {

/// Magnitudes of 2 and more, each once, in order, of the constants that meet sizes, positions,
/// masks or ids: in arithmetic and comparisons, as bounds of ranges and of slices along axes of no
/// fixed length, as diagonals and indices there.
///
/// A value is such where arguments of integers, sizes and constants of at most 8 elements are all
/// that it is computed from: so weights, and what is made of them, are none.
std::vector<int64_t> constantLengths(const Function &graph);

} // namespace gpt2c

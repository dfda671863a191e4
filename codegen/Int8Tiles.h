// The configurations of linear_int8_tma and linear_int8_stationary that are worth considering for a
// product, and what they should cost.
#pragma once

#include "codegen/KernelSource.h"

namespace gpt2c {

/// For products of up to `rows` rows with weights [n, k]; groups of x and y, 0 for none. Empty for
/// groups that linear_int8_tma does not have, and where the scales of a tile's rows are more than
/// fits into shared memory. residual: a matrix in fp16 is added to a result
/// in fp16 at last, which some of the configurations have the copy engine bring. alone: where there
/// are no more blocks than multiprocessors, each has one to itself.
std::vector<LinearInt8TmaConfig> int8TmaConfigs(int64_t rows, int64_t n, int64_t k, int xGroup,
                                                int yGroup, bool residual = false,
                                                bool alone = false);
/// Microseconds, about.
double int8TmaCost(const LinearInt8TmaConfig &c, int64_t rows, int64_t n, int64_t k,
                   bool residual = false);
LinearInt8TmaConfig bestInt8TmaConfig(int64_t rows, int64_t n, int64_t k, int xGroup, int yGroup,
                                      bool residual = false, bool alone = false);

} // namespace gpt2c

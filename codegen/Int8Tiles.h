// The configurations of linear_int8_tma and linear_int8_stationary that are worth considering for a
// product, and what they should cost.
#pragma once

#include "codegen/KernelSource.h"

namespace gpt2c {

/// For products of up to `rows` rows with weights [n, k]; groups of x and y, 0 for none. Never
/// empty for the groups that linear_int8_tma has.
std::vector<LinearInt8TmaConfig> int8TmaConfigs(int64_t rows, int64_t n, int64_t k, int xGroup,
                                                int yGroup);
/// Microseconds, about.
double int8TmaCost(const LinearInt8TmaConfig &c, int64_t rows, int64_t n, int64_t k);
LinearInt8TmaConfig bestInt8TmaConfig(int64_t rows, int64_t n, int64_t k, int xGroup, int yGroup);

} // namespace gpt2c

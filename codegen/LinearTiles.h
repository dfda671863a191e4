// The tiles that a product of many rows may be cut into, and what each costs.
#pragma once

#include "codegen/KernelSource.h"

#include <cstdint>
#include <vector>

namespace gpt2c {

/// Every configuration of linear_tma that pays for some product of this size, each with as many
/// stages as it should have. k is a multiple of 8.
std::vector<LinearTmaConfig> tmaConfigs(int64_t rows, int64_t n, int64_t k);
/// Estimated microseconds on an H200.
double tmaCost(const LinearTmaConfig &config, int64_t rows, int64_t n, int64_t k);
/// The cheapest of them.
LinearTmaConfig bestTmaConfig(int64_t rows, int64_t n, int64_t k);

} // namespace gpt2c

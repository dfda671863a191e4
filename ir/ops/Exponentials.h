// Exponentials of many numbers at once.
#pragma once

#include "ir/ops/CpuLevel.h"

#include <cstdint>

namespace gpt2c {

/// x = exp(x), to two units in the last place: 0 of -inf, inf above the largest, NaN of NaN. A
/// value depends on its element alone.
void exponentials(float *x, int64_t n, CpuLevel level = machineLevel());

} // namespace gpt2c

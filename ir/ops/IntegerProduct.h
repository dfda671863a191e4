// Products of int8, exact, with the dot products that the machine has.
#pragma once

#include "ir/ops/Blas.h"
#include "ir/ops/CpuLevel.h"

namespace gpt2c {

/// c[i, j] = sum over k of a[i, k] b[j, k], on the calling thread; sums are exact where they fit
/// int32. Rows of a, b and c are `stride` elements apart.
void integerProduct(Matrix<const int8_t> a, Matrix<const int8_t> b, Matrix<int32_t> c, int64_t m,
                    int64_t n, int64_t k, CpuLevel level = machineLevel());

} // namespace gpt2c

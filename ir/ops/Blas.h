// Matrix products of the reference evaluation, on OpenBLAS.
#pragma once

#include <cstdint>

namespace gpt2c {

/// C[m, n] = A[m, k] * B, all row-major and dense; B is [k, n], or [n, k] when `transposed`.
void matrixProduct(int64_t m, int64_t n, int64_t k, const float *a, const float *b, bool transposed,
                   float *c);
void matrixProduct(int64_t m, int64_t n, int64_t k, const double *a, const double *b,
                   bool transposed, double *c);

} // namespace gpt2c

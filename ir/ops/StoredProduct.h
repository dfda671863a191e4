// Products with weights as they are stored, in half precision or quantised: few rows widen them in
// registers, many rows a block of columns at a time.
#pragma once

#include "ir/ops/RowProduct.h"

namespace gpt2c {

/// C[m, n] = A[m, k] B[n, k]^T.
template <typename W>
void storedProduct(Matrix<const float> a, Matrix<const W> b, Matrix<float> c, int64_t m, int64_t n,
                   int64_t k);
/// The same of bfloat16 where the elements of A are bfloat16 widened, which tiles multiply.
void bfloatProduct(Matrix<const float> a, Matrix<const BFloat> b, Matrix<float> c, int64_t m,
                   int64_t n, int64_t k);
/// C[m, n] = A[m, k] (scales B)[n, k]^T with B quantised.
template <typename W>
void storedProduct(Matrix<const float> a, Matrix<const W> b, RowScales scales, Matrix<float> c,
                   int64_t m, int64_t n, int64_t k);

} // namespace gpt2c

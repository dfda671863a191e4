// Matrix products of the reference evaluation, on OpenBLAS.
#pragma once

#include <cstdint>

namespace gpt2c {

/// A row-major matrix whose rows are `stride` elements apart.
template <typename T> struct Matrix {
  T *data;
  int64_t stride;
  bool transposed = false; // the transpose of what is stored
};

/// C[m, n] = A[m, k] B[k, n], or C += A B. B may be transposed. Throws like Tensor.
template <typename T>
void matrixProduct(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, int64_t m, int64_t n,
                   int64_t k, bool accumulate);

/// C[m, n] += A^T B of A[k, m] and B[k, n], on the thread that asks. Throws like Tensor.
void addTransposedProduct(Matrix<const float> a, Matrix<const float> b, Matrix<float> c, int64_t m,
                          int64_t n, int64_t k);

extern template void matrixProduct(Matrix<const float>, Matrix<const float>, Matrix<float>, int64_t,
                                   int64_t, int64_t, bool);
extern template void matrixProduct(Matrix<const double>, Matrix<const double>, Matrix<double>,
                                   int64_t, int64_t, int64_t, bool);

} // namespace gpt2c

#include "ir/ops/Blas.h"

#include <cblas.h>

#include <algorithm>

namespace gpt2c {

template <typename T, typename Gemv, typename Gemm>
static void product(int64_t m, int64_t n, int64_t k, const T *a, const T *b, bool transposed, T *c,
                    Gemv gemv, Gemm gemm) {
  if (m == 0 || n == 0 || k == 0) {
    std::fill_n(c, m * n, T(0));
    return;
  }
  int64_t ldb = transposed ? k : n;
  if (m == 1) // one row reads B once, at memory speed
    gemv(CblasRowMajor, transposed ? CblasNoTrans : CblasTrans, transposed ? n : k, ldb, T(1), b,
         ldb, a, 1, T(0), c, 1);
  else
    gemm(CblasRowMajor, CblasNoTrans, transposed ? CblasTrans : CblasNoTrans, m, n, k, T(1), a, k,
         b, ldb, T(0), c, n);
}

void matrixProduct(int64_t m, int64_t n, int64_t k, const float *a, const float *b, bool transposed,
                   float *c) {
  product(m, n, k, a, b, transposed, c, cblas_sgemv, cblas_sgemm);
}

void matrixProduct(int64_t m, int64_t n, int64_t k, const double *a, const double *b,
                   bool transposed, double *c) {
  product(m, n, k, a, b, transposed, c, cblas_dgemv, cblas_dgemm);
}

} // namespace gpt2c

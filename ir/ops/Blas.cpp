#include "ir/ops/Blas.h"

#include "ir/Budget.h"
#include "ir/ops/BlasThreads.h"
#include "ir/ops/RowProduct.h"

#include <cblas.h>

#include <algorithm>
#include <atomic>

/// Of cpu/blas_kernels.c.
extern "C" int gpt2cBlasHasRoom(int threads);

namespace gpt2c {

bool setProductThreads(int threads) {
  if (threads > openblas_get_num_threads() && !gpt2cBlasHasRoom(threads))
    return false;
  openblas_set_num_threads(threads);
  return true;
}

int productThreads() { return openblas_get_num_threads(); }

/// OpenBLAS takes its buffers at the first product, and never gives them back.
static void needRoom() {
  static std::atomic<bool> asked = false;
  if (asked.exchange(true, std::memory_order_relaxed))
    return;
  const int threads = openblas_get_num_threads();
  if (gpt2cBlasHasRoom(threads))
    return;
  asked = false;
  throw TensorTooLarge("matrix products on " + std::to_string(threads) + " threads need " +
                       std::to_string(threads * 136) +
                       " MiB of address space, which its limit (ulimit -v) does not leave");
}

static constexpr auto gemv(float) { return cblas_sgemv; }
static constexpr auto gemv(double) { return cblas_dgemv; }
static constexpr auto gemm(float) { return cblas_sgemm; }
static constexpr auto gemm(double) { return cblas_dgemm; }

template <typename T>
void matrixProduct(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, int64_t m, int64_t n,
                   int64_t k, bool accumulate) {
  if (m == 0 || n == 0 || (k == 0 && accumulate))
    return;
  if (RowInvariance::active())
    return rowProduct(a, b, c, m, n, k, accumulate);
  needRoom();
  T beta = accumulate ? 1 : 0;
  if (k == 0)
    for (int64_t i = 0; i < m; ++i)
      std::fill_n(c.data + i * c.stride, n, T(0));
  else if (m == 1) // a vector reads B once, at memory speed
    gemv(T())(CblasRowMajor, b.transposed ? CblasNoTrans : CblasTrans, b.transposed ? n : k,
              b.transposed ? k : n, 1, b.data, b.stride, a.data, 1, beta, c.data, 1);
  else
    gemm(T())(CblasRowMajor, CblasNoTrans, b.transposed ? CblasTrans : CblasNoTrans, m, n, k, 1,
              a.data, a.stride, b.data, b.stride, beta, c.data, c.stride);
}

template void matrixProduct(Matrix<const float>, Matrix<const float>, Matrix<float>, int64_t,
                            int64_t, int64_t, bool);
template void matrixProduct(Matrix<const double>, Matrix<const double>, Matrix<double>, int64_t,
                            int64_t, int64_t, bool);

} // namespace gpt2c

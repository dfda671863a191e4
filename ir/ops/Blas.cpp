#include "ir/ops/Blas.h"

#include "ir/Budget.h"
#include "ir/ops/BlasThreads.h"
#include "ir/ops/RowProduct.h"
#include "ir/ops/Workers.h"

#include <cblas.h>

#include <algorithm>
#include <atomic>

// Of cpu/blas_kernels.c.
extern "C" int gpt2cBlasHasRoom(int threads);
extern "C" int gpt2cProductThreads();
extern "C" void gpt2cSetProductThreads(int threads);

namespace gpt2c {

bool setProductThreads(int threads) {
  constexpr int most = 128; // products of OpenBLAS at a time
  threads = std::clamp(threads, 1, most);
  if (threads > productThreads() && !gpt2cBlasHasRoom(threads))
    return false;
  gpt2cSetProductThreads(threads);
  return true;
}

int productThreads() { return gpt2cProductThreads(); }

/// OpenBLAS takes its buffers at the first product, and never gives them back. It has one thread:
/// products are cut into parts for those of Workers.h.
static void needRoom() {
  static std::atomic<bool> asked = false;
  if (asked.exchange(true, std::memory_order_relaxed))
    return;
  openblas_set_num_threads(1);
  const int threads = productThreads();
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

/// Whether rowProduct(), which reads B once and copies nothing, is faster than OpenBLAS.
static bool isForRows(int64_t m, int64_t n, int64_t k, bool transposed) {
  if (!transposed)
    return m > 1 && n <= 128 && machineLevel() >= CpuLevel::Avx512; // values of attention
  const int64_t rows = machineLevel() >= CpuLevel::Avx512 ? 64 : 8;
  return machineLevel() >= CpuLevel::Avx2 && (m <= 8 || (m <= rows && k >= 256));
}

template <typename T>
void matrixProduct(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, int64_t m, int64_t n,
                   int64_t k, bool accumulate) {
  if (m == 0 || n == 0 || (k == 0 && accumulate))
    return;
  if (k == 0 || RowInvariance::active() || isForRows(m, n, k, b.transposed))
    return rowProduct(a, b, c, m, n, k, accumulate);
  needRoom();
  const T beta = accumulate ? 1 : 0;
  constexpr int64_t unit = 64; // columns
  const int64_t units = (n + unit - 1) / unit;
  const int64_t parts =
      std::min<int64_t>(productThreads(), partsOf(double(m) * double(n) * double(k), units));
  forParts(parts, [&](int64_t i) {
    const int64_t first = units * i / parts * unit;
    const int64_t columns = std::min(n, units * (i + 1) / parts * unit) - first;
    const T *from = b.data + (b.transposed ? first * b.stride : first);
    if (m == 1) // a vector reads B once, at memory speed
      gemv(T())(CblasRowMajor, b.transposed ? CblasNoTrans : CblasTrans, b.transposed ? columns : k,
                b.transposed ? k : columns, 1, from, b.stride, a.data, 1, beta, c.data + first, 1);
    else
      gemm(T())(CblasRowMajor, CblasNoTrans, b.transposed ? CblasTrans : CblasNoTrans, m, columns,
                k, 1, a.data, a.stride, from, b.stride, beta, c.data + first, c.stride);
  });
}

void addTransposedProduct(Matrix<const float> a, Matrix<const float> b, Matrix<float> c, int64_t m,
                          int64_t n, int64_t k) {
  if (m == 0 || n == 0 || k == 0)
    return;
  needRoom();
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, m, n, k, 1, a.data, a.stride, b.data,
              b.stride, 1, c.data, c.stride);
}

template void matrixProduct(Matrix<const float>, Matrix<const float>, Matrix<float>, int64_t,
                            int64_t, int64_t, bool);
template void matrixProduct(Matrix<const double>, Matrix<const double>, Matrix<double>, int64_t,
                            int64_t, int64_t, bool);

} // namespace gpt2c

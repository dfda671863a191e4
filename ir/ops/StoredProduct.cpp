#include "ir/ops/StoredProduct.h"

#include "ir/Storage.h"
#include "ir/ops/RowKernels.h"
#include "ir/ops/TileProduct.h"
#include "ir/ops/Workers.h"

#include <algorithm>
#include <memory>
#include <new>

namespace gpt2c {

/// Whether the weights are read once for so many rows, or BLAS is worth widening them first.
static bool isForRows(int64_t m) {
  return RowInvariance::active() || m <= (machineLevel() >= CpuLevel::Avx512 ? 64 : 8);
}

/// Widens blocks of columns that stay in the cache, each for all rows.
template <typename W>
static void widenedProduct(Matrix<const float> a, Matrix<const W> b, RowScales scales,
                           Matrix<float> c, int64_t m, int64_t n, int64_t k) {
  constexpr int64_t blockBytes = 1 << 20, unit = 16; // columns
  const int64_t fit = std::max<int64_t>(blockBytes / int64_t(sizeof(float)) / k / unit, 4) * unit;
  const int64_t columns = std::min(fit, (n + unit - 1) / unit * unit);
  const int64_t blocks = (n + columns - 1) / columns;
  const int64_t parts = partsOf(double(m) * double(n) * double(k), blocks);
  forParts(parts, [&](int64_t part) {
    const std::shared_ptr<void> room = StoragePool::take(size_t(columns * k) * sizeof(float));
    if (!room)
      throw std::bad_alloc();
    float *wide = static_cast<float *>(room.get());
    for (int64_t i = blocks * part / parts; i < blocks * (part + 1) / parts; ++i) {
      const int64_t first = i * columns, some = std::min(columns, n - first);
      widenRows<W>({elementAt(b.data, first * b.stride), b.stride}, some, k, scales.from(first),
                   wide, machineLevel());
      matrixProduct<float>(a, {wide, k, true}, {c.data + first, c.stride}, m, some, k, false);
    }
  });
}

template <typename W>
void storedProduct(Matrix<const float> a, Matrix<const W> b, Matrix<float> c, int64_t m, int64_t n,
                   int64_t k) {
  if (isForRows(m) || k == 0)
    rowProduct(a, b, c, m, n, k);
  else
    widenedProduct(a, b, {}, c, m, n, k);
}

void bfloatProduct(Matrix<const float> a, Matrix<const BFloat> b, Matrix<float> c, int64_t m,
                   int64_t n, int64_t k) {
  if (RowInvariance::active() || !tilesFit<BFloat>(m, n, k, k))
    return storedProduct(a, b, c, m, n, k);
  tileProduct(TileRows<BFloat>(a, m, k), b, c, n, k);
  if (const int64_t whole = n / tileColumns * tileColumns; whole < n)
    storedProduct<BFloat>(a, {b.data + whole * b.stride, b.stride, true},
                          {c.data + whole, c.stride}, m, n - whole, k);
}

template <typename W>
void storedProduct(Matrix<const float> a, Matrix<const W> b, RowScales scales, Matrix<float> c,
                   int64_t m, int64_t n, int64_t k) {
  if (isForRows(m) || k == 0)
    rowProduct<float, W>(a, b, scales, c, m, n, k);
  else
    widenedProduct(a, b, scales, c, m, n, k);
}

template void storedProduct(Matrix<const float>, Matrix<const Half>, Matrix<float>, int64_t,
                            int64_t, int64_t);
template void storedProduct(Matrix<const float>, Matrix<const BFloat>, Matrix<float>, int64_t,
                            int64_t, int64_t);
#define ROW_STEPS(W)                                                                               \
  template void storedProduct(Matrix<const float>, Matrix<const W>, RowScales, Matrix<float>,      \
                              int64_t, int64_t, int64_t);
ALL_ROW_STEPS
#undef ROW_STEPS

} // namespace gpt2c

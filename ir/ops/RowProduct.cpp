#include "ir/ops/RowProduct.h"

#include "ir/ops/RowKernels.h"
#include "ir/ops/Workers.h"

#include <algorithm>

namespace gpt2c {

static thread_local bool isActive = false;

RowInvariance::RowInvariance(bool wanted) : before_(isActive) { isActive |= wanted; }
RowInvariance::~RowInvariance() { isActive = before_; }
bool RowInvariance::active() { return isActive; }

/// Calls run(part) for parts that make up all columns.
template <typename T, typename W, typename F>
static void cutColumns(const RowPart<T, W> &all, F run) {
  constexpr int64_t unit = 48; // columns
  const int64_t units = (all.end + unit - 1) / unit;
  const int64_t parts = partsOf(double(all.m) * double(all.end) * double(all.k), units);
  forParts(parts, [&](int64_t i) {
    RowPart<T, W> part = all;
    part.first = units * i / parts * unit;
    part.end = std::min(all.end, units * (i + 1) / parts * unit);
    run(part);
  });
}

template <typename T>
void rowProduct(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, int64_t m, int64_t n, int64_t k,
                bool accumulate, CpuLevel level) {
  if (k == 0 && !accumulate)
    for (int64_t i = 0; i < m; ++i)
      std::fill_n(c.data + i * c.stride, n, T(0));
  cutColumns(RowPart<T, T>{a, b, c, m, 0, n, k, accumulate, {}}, [&](const RowPart<T, T> &part) {
    b.transposed ? dotPart(part, level) : addPart(part, level);
  });
}

template <typename T, typename W>
void rowProduct(Matrix<const T> a, Matrix<const W> b, RowScales scales, Matrix<T> c, int64_t m,
                int64_t n, int64_t k, CpuLevel level) {
  if (k == 0)
    for (int64_t i = 0; i < m; ++i)
      std::fill_n(c.data + i * c.stride, n, T(0));
  cutColumns(RowPart<T, W>{a, b, c, m, 0, n, k, false, scales},
             [&](const RowPart<T, W> &part) { dotPart(part, level); });
}

template <typename W>
void rowProduct(Matrix<const float> a, Matrix<const W> b, Matrix<float> c, int64_t m, int64_t n,
                int64_t k, CpuLevel level) {
  if (k == 0)
    for (int64_t i = 0; i < m; ++i)
      std::fill_n(c.data + i * c.stride, n, 0.0f);
  cutColumns(RowPart<float, W>{a, b, c, m, 0, n, k, false, {}},
             [&](const RowPart<float, W> &part) { dotPart(part, level); });
}

template void rowProduct(Matrix<const float>, Matrix<const Half>, Matrix<float>, int64_t, int64_t,
                         int64_t, CpuLevel);
template void rowProduct(Matrix<const float>, Matrix<const BFloat>, Matrix<float>, int64_t, int64_t,
                         int64_t, CpuLevel);
template void rowProduct(Matrix<const float>, Matrix<const float>, Matrix<float>, int64_t, int64_t,
                         int64_t, bool, CpuLevel);
template void rowProduct(Matrix<const double>, Matrix<const double>, Matrix<double>, int64_t,
                         int64_t, int64_t, bool, CpuLevel);
#define ROW_STEPS(W)                                                                               \
  template void rowProduct(Matrix<const float>, Matrix<const W>, RowScales, Matrix<float>,         \
                           int64_t, int64_t, int64_t, CpuLevel);                                   \
  template void rowProduct(Matrix<const double>, Matrix<const W>, RowScales, Matrix<double>,       \
                           int64_t, int64_t, int64_t, CpuLevel);
ALL_ROW_STEPS
#undef ROW_STEPS

} // namespace gpt2c

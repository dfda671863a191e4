// The inside of rowProduct(): one part of a product at one level.
#pragma once

#include "ir/Tensor.h"
#include "ir/ops/CpuLevel.h"
#include "ir/ops/RowProduct.h"

namespace gpt2c {

/// Elements of K whose sum is added to the result at once.
constexpr int64_t partOfK = 1024;
/// Sums that elements of K are dealt to.
template <typename T> constexpr int lanesOf = 64 / sizeof(T);

/// ROW_STEPS(W) for each quantised W.
#define ALL_ROW_STEPS ROW_STEPS(int8_t) ROW_STEPS(Fp8) ROW_STEPS(Int4x8)

/// Columns [first, end) of C; of B the rows, where it is transposed, or columns.
template <typename T, typename W> struct RowPart {
  Matrix<const T> a;
  Matrix<const W> b;
  Matrix<T> c;
  int64_t m, first, end, k;
  bool accumulate;
  RowScales scales;
};

/// B transposed.
template <typename T, typename W> void dotPart(const RowPart<T, W> &p, CpuLevel level);
/// `rows` rows of k elements, times their scales where there are some, one row behind the other.
template <typename W>
void widenRows(Matrix<const W> from, int64_t rows, int64_t k, RowScales scales, float *to,
               CpuLevel level);
/// B not transposed, and without scales.
template <typename T> void addPart(const RowPart<T, T> &p, CpuLevel level);

} // namespace gpt2c

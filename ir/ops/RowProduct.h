// Matrix products in which a row of the result depends on its own row of A, and on B, alone: bit
// for bit the same whatever other rows there are, for any number of threads and at every level of
// the CPU. BLAS changes the order of its sums with the number of rows.
#pragma once

#include "ir/ops/Blas.h"
#include "ir/ops/CpuLevel.h"
#include "ir/ops/StoredFloat.h"

namespace gpt2c {

/// While one lives, the products of its thread are rowProduct(), and what ops compute of one row
/// does not depend on the others.
class RowInvariance {
public:
  explicit RowInvariance(bool wanted);
  ~RowInvariance();
  RowInvariance(const RowInvariance &) = delete;
  RowInvariance &operator=(const RowInvariance &) = delete;
  static bool active();

private:
  bool before_;
};

/// Of B's row j and elements g * group .. of K: data[j * stride + g], and in the same place of
/// `zeros` what is taken from each element before. Without data all are 1, without zeros 0.
struct RowScales {
  const float *data = nullptr;
  int64_t stride = 0, group = 0;
  const int8_t *zeros = nullptr;

  /// From row j and group g on.
  RowScales from(int64_t j, int64_t g = 0) const {
    const int64_t at = j * stride + g;
    return {data ? data + at : nullptr, stride, group, zeros ? zeros + at : nullptr};
  }
};

/// matrixProduct() in one order of sums. With L = 16 lanes in F32 and 8 in F64:
/// - B transposed: of each 1024 elements of K, element k is added to lane k mod L by a fused
///   multiply-add, then lane l + L/2 to lane l, l + L/4, ...; those parts are added up in their
///   order, behind C where it accumulates;
/// - else element k of K is added by a fused multiply-add to what is there, in the order of k.
/// An element of A that is 0 changes nothing where B is finite.
template <typename T>
void rowProduct(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, int64_t m, int64_t n, int64_t k,
                bool accumulate, CpuLevel level = machineLevel());

/// C[m, n] = A[m, k] (scales (B - zeros))[n, k]^T with B quantised, W int8_t or another that
/// withSteps() gives: the order of rowProduct(), in which parts end where groups do too and are
/// multiplied by their scale and added by a fused multiply-add. K is a multiple of the group.
template <typename T, typename W>
void rowProduct(Matrix<const T> a, Matrix<const W> b, RowScales scales, Matrix<T> c, int64_t m,
                int64_t n, int64_t k, CpuLevel level = machineLevel());

/// C[m, n] = A[m, k] B[n, k]^T with B in half precision, which is widened: the bits of
/// rowProduct().
template <typename W>
void rowProduct(Matrix<const float> a, Matrix<const W> b, Matrix<float> c, int64_t m, int64_t n,
                int64_t k, CpuLevel level = machineLevel());

} // namespace gpt2c

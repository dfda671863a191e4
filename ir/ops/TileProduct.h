// Matrix products of many rows by the tile registers of AMX: sums of int8, which are exact, and of
// bfloat16, which are in single precision in an order of their own.
#pragma once

#include "ir/ops/Blas.h"
#include "ir/ops/CpuLevel.h"
#include "ir/ops/StoredFloat.h"

#include <memory>

namespace gpt2c {

/// Elements of a row of a tile, 64 bytes: K and where parts of it begin are multiples.
template <typename W> constexpr int64_t tileElements = 64 / sizeof(W);
/// Columns of a tile; those that are left over are the caller's.
constexpr int64_t tileColumns = 16;

/// Whether tiles pay for a product over `part` of K elements.
template <typename W> bool tilesFit(int64_t m, int64_t n, int64_t k, int64_t part) {
  return machineLevel() >= CpuLevel::Amx && m > 8 && n >= tileColumns && k % tileElements<W> == 0 &&
         part % tileElements<W> == 0;
}

/// Rows of A in the order in which tiles read them. Floats must be bfloat16 widened.
template <typename W> class TileRows {
public:
  TileRows(Matrix<const int8_t> a, int64_t m, int64_t k);
  TileRows(Matrix<const float> a, int64_t m, int64_t k);
  int64_t rows() const { return m_; }
  /// The tile of rows 16 i on and elements `at` on.
  const uint32_t *tile(int64_t i, int64_t at) const {
    return static_cast<const uint32_t *>(words_.get()) + (i * steps_ + at / tileElements<W>)*256;
  }

private:
  uint32_t &word(int64_t row, int64_t at);
  int64_t m_, steps_;
  std::shared_ptr<void> words_;
};

template <> TileRows<int8_t>::TileRows(Matrix<const int8_t> a, int64_t m, int64_t k);
template <> TileRows<BFloat>::TileRows(Matrix<const float> a, int64_t m, int64_t k);

/// What the integer sums of a row and a column are multiplied by, after `offset` of the column, if
/// there is one, was added.
struct TileScales {
  const float *row;
  int64_t rowStride; ///< from row to row; 0: one for all
  const float *column;
  int64_t columnStride;
  const int32_t *offset;
};

/// C += scales (A B^T) over elements [first, first + count) of K, of the columns that make whole
/// tiles. The same bits as of integerProduct() and the scales one after the other.
void tileProduct(const TileRows<int8_t> &a, Matrix<const int8_t> b, TileScales scales,
                 Matrix<float> c, int64_t n, int64_t first, int64_t count);
/// C = A B^T, of the columns that make whole tiles.
void tileProduct(const TileRows<BFloat> &a, Matrix<const BFloat> b, Matrix<float> c, int64_t n,
                 int64_t k);

} // namespace gpt2c

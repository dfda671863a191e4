// linear_quantised_rows: a few rows in fp16 with int8 weights; it can quantise the rows.
#pragma once

#include "codegen/Grid.h"
#include "codegen/KernelSource.h"
#include "schedule/products/LinearProblem.h"
#include "templates/linear/parts/Epilogue.h"

#include <string>
#include <vector>

namespace gpt2c {

/// fp16 rows, int8 weights; k a multiple of 16.
struct LinearQuantisedRowsConfig {
  Scalar y = Scalar::F16, p = Scalar::F32;
  int rows = 8, kSplit = 8, warps = 8, k = 0;
  NormKind norm = NormKind::None;
  int wGroup = 0;  ///< elements of K that share a scale of their own
  int xGroup = -1; ///< x is quantised in groups of 64, 128, 256 or whole rows (0)
};

constexpr int quantisedRowsColumns(const LinearQuantisedRowsConfig &c) {
  return c.warps / c.kSplit * 16;
}
/// Shared memory for rows that are normed or quantised.
constexpr unsigned quantisedRowsBytes(const LinearQuantisedRowsConfig &c) {
  if (c.xGroup >= 0)
    return c.rows * ((c.k + 127) / 128 * 128 + 64 + 4 * (c.xGroup > 0 ? c.k / c.xGroup : 1));
  return c.rows * ((c.k + 63) / 64 * 64 + 8) * 2;
}
KernelSource linearQuantisedRows(llvm::StringRef name, const LinearQuantisedRowsConfig &config,
                                 const Epilogue &epilogue);

std::string nameOf(const LinearQuantisedRowsConfig &c);
Grid gridOf(const LinearQuantisedRowsConfig &c, const plan::ExprT &m, int64_t n,
            int64_t processors);

} // namespace gpt2c

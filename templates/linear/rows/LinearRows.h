// linear_rows: a few rows in fp16 or bf16, K in parts within a block.
#pragma once

#include "codegen/Grid.h"
#include "codegen/KernelSource.h"
#include "schedule/products/LinearProblem.h"
#include "templates/linear/parts/Epilogue.h"

#include <string>
#include <vector>

namespace gpt2c {

/// fp16 or bf16 rows, weights of their type, of four bits, or bytes beside fp16; k a multiple of 8.
struct LinearRowsConfig {
  Scalar y = Scalar::F16, p = Scalar::F32;
  int rows = 8, groups = 1, warps = 8, splits = 1, k = 0;
  NormKind norm = NormKind::None;
  Scalar x = Scalar::F16, w = Scalar::F16;
  int wGroup = 0;      ///< elements of K that share a scale of their own, a multiple of 32
  bool wZeros = false; ///< of four bits: a zero point stands beside each scale
  bool pairs = false;  ///< n is even
};

constexpr int rowsColumns(const LinearRowsConfig &c) { return 16 * c.groups; }

constexpr unsigned rowsSharedBytes(const LinearRowsConfig &c) {
  return 4 * (c.warps * c.groups * c.rows * 20 + (c.splits > 1 ? c.rows * 16 * c.groups : 0) +
              (c.norm != NormKind::None ? c.warps * 2 * c.rows : 0));
}

KernelSource linearRows(llvm::StringRef name, const LinearRowsConfig &config,
                        const Epilogue &epilogue);

std::string nameOf(const LinearRowsConfig &c);
Grid gridOf(const LinearRowsConfig &c, const plan::ExprT &m, int64_t n, int64_t processors);
/// What it takes for up to sixteen rows of many weights, in microseconds, fitted as
/// ringMicroseconds() is.
double rowsMicroseconds(const LinearProblem &p);
/// Whether blocks have the whole of K.
bool rowsAreWhole(const LinearProblem &p);

} // namespace gpt2c

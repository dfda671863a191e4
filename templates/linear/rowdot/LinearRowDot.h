// linear_rowdot: up to eight rows, a warp or several for each column.
#pragma once

#include "codegen/Grid.h"
#include "codegen/KernelSource.h"
#include "schedule/products/LinearProblem.h"
#include "templates/linear/parts/Epilogue.h"

#include <string>
#include <vector>

namespace gpt2c {

struct LinearRowDotConfig {
  Scalar x = Scalar::F16, w = Scalar::F16, y = Scalar::F16, p = Scalar::F32;
  int rows = 1, cols = 2, kSplit = 1, warps = 8, k = 0;
  NormKind norm = NormKind::None;
  int wGroup = 0;      ///< of four bits: elements of K that share a scale of their own
  bool wZeros = false; ///< of four bits: a zero point stands beside each scale
};

/// Columns of Y that one block computes.
constexpr int rowDotColumns(const LinearRowDotConfig &c) { return c.warps / c.kSplit * c.cols; }

KernelSource linearRowDot(llvm::StringRef name, const LinearRowDotConfig &config,
                          const Epilogue &epilogue);

std::string nameOf(const LinearRowDotConfig &c);
Grid gridOf(const LinearRowDotConfig &c, const plan::ExprT &m, int64_t n, int64_t processors);

} // namespace gpt2c

// linear_stream: the weights of a vocabulary pass by a few rows in shared memory.
#pragma once

#include "codegen/Grid.h"
#include "codegen/KernelSource.h"
#include "schedule/products/LinearProblem.h"
#include "templates/linear/parts/Epilogue.h"

#include <string>
#include <vector>

namespace gpt2c {

/// fp16 or bf16 rows, weights of their type, or int8 beside fp16; k a multiple of 32 or 64. With
/// `best` it leaves what argmaxParts reads.
struct LinearStreamConfig {
  Scalar y = Scalar::F32, p = Scalar::F32;
  int rows = 8, warps = 8, k = 0;
  NormKind norm = NormKind::None;
  Scalar x = Scalar::F16, w = Scalar::F16;
  bool best = false;
};
constexpr unsigned streamSharedBytes(const LinearStreamConfig &c) {
  return c.rows * ((c.k + 63) / 64 * 64 + (isQuantised(c.w) ? 8 : 32)) * 2;
}
KernelSource linearStream(llvm::StringRef name, const LinearStreamConfig &config,
                          const Epilogue &epilogue);

std::string nameOf(const LinearStreamConfig &c);
Grid gridOf(const LinearStreamConfig &c, const plan::ExprT &m, int64_t n, int64_t processors);

} // namespace gpt2c

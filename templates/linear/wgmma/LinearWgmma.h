// linear_wgmma: tiles in fp16 or bf16, by wgmma where there is such a thing, else by mma.
#pragma once

#include "codegen/Grid.h"
#include "codegen/KernelSource.h"
#include "schedule/products/LinearProblem.h"
#include "templates/linear/parts/Epilogue.h"

#include <string>
#include <vector>

namespace gpt2c {

/// On sm_90a by wgmma, elsewhere as linearMma computes the same tile; k a multiple of 8.
struct LinearWgmmaConfig {
  Scalar y = Scalar::F16;
  int bm = 128, bn = 128, stages = 3, splitK = 1;
  Scalar x = Scalar::F16; ///< F16 or BF16, of both operands
};

constexpr unsigned wgmmaSharedBytes(const LinearWgmmaConfig &c) {
  return c.stages * (c.bm + c.bn) * 64 * 2 + 1024;
}

KernelSource linearWgmma(llvm::StringRef name, const LinearWgmmaConfig &config,
                         const Epilogue &epilogue);

std::string nameOf(const LinearWgmmaConfig &c);
Grid gridOf(const LinearWgmmaConfig &c, const plan::ExprT &m, int64_t n, int64_t processors);

} // namespace gpt2c

// linear_int8: int8 rows and weights, by wgmma where there is such a thing, else by mma.
#pragma once

#include "codegen/Grid.h"
#include "codegen/KernelSource.h"
#include "schedule/products/LinearProblem.h"
#include "templates/linear/parts/Epilogue.h"

#include <string>
#include <vector>

namespace gpt2c {

/// int8 operands, k a multiple of 16. On sm_90a by wgmma, elsewhere as linearMma computes the same
/// tile. With yGroup, or with an epilogue that ends in QuantiseByScale, the result is int8.
struct LinearInt8Config {
  Scalar y = Scalar::F16;
  int bm = 128, bn = 128, stages = 3, splitK = 1, xGroup = 0, yGroup = 0;
};

constexpr unsigned int8SharedBytes(const LinearInt8Config &c) {
  return c.stages * (c.bm + c.bn) * 128 + 1024;
}

KernelSource linearInt8(llvm::StringRef name, const LinearInt8Config &config,
                        const Epilogue &epilogue);

std::string nameOf(const LinearInt8Config &c);
Grid gridOf(const LinearInt8Config &c, const plan::ExprT &m, int64_t n, int64_t processors);

} // namespace gpt2c

// linear_mma: tiles in fp16 or int8 by mma, for sizes and groups that others do not have.
#pragma once

#include "codegen/Grid.h"
#include "codegen/KernelSource.h"
#include "schedule/products/LinearProblem.h"
#include "templates/linear/parts/Epilogue.h"

#include <string>
#include <vector>

namespace gpt2c {

struct LinearMmaConfig {
  Scalar y = Scalar::F16;
  int bm = 128, bn = 128, bk = 32, warpsM = 2, warpsN = 4, stages = 4, splitK = 1;
  Scalar x = Scalar::F16; ///< F16, BF16 or I8, of both operands
  int xGroup = 0, yGroup = 0;
};

KernelSource linearMma(llvm::StringRef name, const LinearMmaConfig &config,
                       const Epilogue &epilogue);

std::string nameOf(const LinearMmaConfig &c);
Grid gridOf(const LinearMmaConfig &c, const plan::ExprT &m, int64_t n, int64_t processors);

} // namespace gpt2c

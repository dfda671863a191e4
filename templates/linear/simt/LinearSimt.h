// linear_simt: tiles by fused multiply-adds, any types.
#pragma once

#include "codegen/Grid.h"
#include "codegen/KernelSource.h"
#include "schedule/products/LinearProblem.h"
#include "templates/linear/parts/Epilogue.h"

#include <string>
#include <vector>

namespace gpt2c {

struct LinearSimtConfig {
  Scalar x = Scalar::F32, w = Scalar::F32, y = Scalar::F32;
  int bm = 128, bn = 128, bk = 8, tm = 8, tn = 8, splitK = 1;
};

KernelSource linearSimt(llvm::StringRef name, const LinearSimtConfig &config,
                        const Epilogue &epilogue);

std::string nameOf(const LinearSimtConfig &c);
Grid gridOf(const LinearSimtConfig &c, const plan::ExprT &m, int64_t n, int64_t processors);

} // namespace gpt2c

// linear_tma_int8_weights: linear_tma whose weights are int8 and become halves in shared memory.
#pragma once

#include "codegen/KernelSource.h"
#include "schedule/products/LinearProblem.h"
#include "templates/linear/parts/Epilogue.h"
#include "templates/linear/parts/TmaTiles.h"

#include <string>
#include <vector>

namespace gpt2c {

KernelSource linearTmaInt8Weights(llvm::StringRef name, const LinearTmaInt8WeightsConfig &config,
                                  const Epilogue &epilogue);

} // namespace gpt2c

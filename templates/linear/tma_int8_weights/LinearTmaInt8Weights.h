// linear_tma_int8_weights: linear_tma whose weights are int8 and become halves in shared memory.
#pragma once

#include "codegen/KernelSource.h"
#include "schedule/LinearProblem.h"
#include "templates/linear/parts/Epilogue.h"
#include "templates/linear/parts/TmaTiles.h"

#include <string>
#include <vector>

namespace gpt2c {

/// w is I8, with rawStages.
KernelSource linearTmaInt8Weights(llvm::StringRef name, const LinearTmaConfig &config,
                                  const Epilogue &epilogue);

} // namespace gpt2c

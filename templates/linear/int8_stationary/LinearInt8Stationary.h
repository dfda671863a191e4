// linear_int8_stationary: int8 rows that stay in shared memory while weights pass by.
#pragma once

#include "codegen/KernelSource.h"
#include "schedule/products/LinearProblem.h"
#include "templates/linear/parts/Epilogue.h"
#include "templates/linear/parts/Int8TmaTiles.h"

#include <string>
#include <vector>

namespace gpt2c {

KernelSource linearInt8Stationary(llvm::StringRef name, const LinearInt8StationaryConfig &config,
                                  const Epilogue &epilogue);

} // namespace gpt2c

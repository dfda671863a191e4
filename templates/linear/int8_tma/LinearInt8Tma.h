// linear_int8_tma: linear_tma for operands of a byte.
#pragma once

#include "codegen/KernelSource.h"
#include "schedule/products/LinearProblem.h"
#include "templates/linear/parts/Epilogue.h"
#include "templates/linear/parts/Int8TmaTiles.h"

#include <string>
#include <vector>

namespace gpt2c {

KernelSource linearInt8Tma(llvm::StringRef name, const LinearInt8TmaConfig &config,
                           const Epilogue &epilogue);

} // namespace gpt2c

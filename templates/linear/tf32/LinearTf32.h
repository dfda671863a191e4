// linear_tf32: fp32 operands as three products of TF32, by mma.
#pragma once

#include "codegen/KernelSource.h"
#include "schedule/products/LinearProblem.h"
#include "templates/linear/parts/Epilogue.h"
#include "templates/linear/parts/Tf32Tiles.h"

#include <string>
#include <vector>

namespace gpt2c {

KernelSource linearTf32(llvm::StringRef name, const LinearTf32Config &config,
                        const Epilogue &epilogue);

} // namespace gpt2c

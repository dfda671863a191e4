// linear_tf32_wgmma: linear_tf32 on Hopper, by wgmma and tensor maps.
#pragma once

#include "codegen/KernelSource.h"
#include "schedule/products/LinearProblem.h"
#include "templates/linear/parts/Epilogue.h"
#include "templates/linear/parts/Tf32Tiles.h"

#include <string>
#include <vector>

namespace gpt2c {

KernelSource linearTf32Wgmma(llvm::StringRef name, const LinearTf32WgmmaConfig &config,
                             const Epilogue &epilogue);

} // namespace gpt2c

// linear_tma: a tile for each block on Hopper, by wgmma from a ring that tensor maps fill.
#pragma once

#include "codegen/KernelSource.h"
#include "schedule/products/LinearProblem.h"
#include "templates/linear/parts/Epilogue.h"
#include "templates/linear/parts/TmaTiles.h"

#include <string>
#include <vector>

namespace gpt2c {

KernelSource linearTma(llvm::StringRef name, const LinearTmaConfig &config,
                       const Epilogue &epilogue);

} // namespace gpt2c

// linear_tma_persistent: blocks that take tile after tile on Hopper.
#pragma once

#include "codegen/Grid.h"
#include "codegen/KernelSource.h"
#include "schedule/products/LinearProblem.h"
#include "templates/linear/parts/Epilogue.h"
#include "templates/linear/parts/TmaTiles.h"

#include <string>
#include <vector>

namespace gpt2c {

/// Whether a residual comes by a tensor map: it is all that is added behind a bias.
bool takesResidualByMap(const LinearTmaPersistentConfig &config, const Epilogue &epilogue);
KernelSource linearTmaPersistent(llvm::StringRef name, const LinearTmaPersistentConfig &config,
                                 const Epilogue &epilogue);

} // namespace gpt2c

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
/// sharedRows: x is of rows that ranks have ended, each its share (templates/exchange/
/// row_shares.cuh).
KernelSource linearTmaPersistent(llvm::StringRef name, const LinearTmaPersistentConfig &config,
                                 const Epilogue &epilogue, bool sharedRows = false);
/// The launch behind one whose epilogue scatters: it ends its tiles where ranks share a device, and
/// waits for the other ranks elsewhere.
KernelSource linearTmaPersistentEnd(llvm::StringRef name, const LinearTmaPersistentConfig &config,
                                    const Epilogue &epilogue);

} // namespace gpt2c

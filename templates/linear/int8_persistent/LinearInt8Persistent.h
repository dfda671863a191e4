// linear_int8_persistent: blocks that take tile after tile of int8 products.
#pragma once

#include "codegen/Grid.h"
#include "codegen/KernelSource.h"
#include "schedule/products/LinearProblem.h"
#include "templates/linear/parts/Epilogue.h"
#include "templates/linear/parts/Int8TmaTiles.h"

#include <string>
#include <vector>

namespace gpt2c {

KernelSource linearInt8Persistent(llvm::StringRef name, const LinearInt8PersistentConfig &config,
                                  const Epilogue &epilogue);

} // namespace gpt2c

// linear_fp8_persistent: blocks that take tile after tile of fp8 products.
#pragma once

#include "codegen/KernelSource.h"
#include "templates/linear/parts/Epilogue.h"
#include "templates/linear/parts/Int8TmaTiles.h"

namespace gpt2c {

KernelSource linearFp8Persistent(llvm::StringRef name, const LinearFp8PersistentConfig &config,
                                 const Epilogue &epilogue);

} // namespace gpt2c

// Tables of tokens that a model has in bytes.
#pragma once

#include "ir/Function.h"

#include "llvm/Support/Error.h"

namespace gpt2c {

/// Tables of bytes that lookups read, and no `embed`, become floats: a step would dequantise all of
/// them.
llvm::Error widenTables(Function &f);

} // namespace gpt2c

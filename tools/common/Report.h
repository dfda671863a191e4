// The end of every tool's main.
#pragma once

#include "ir/Error.h"

namespace gpt2c {

/// Prints the error, if any, to stderr and returns the process's exit code.
int report(llvm::Error e);

} // namespace gpt2c

// What every tool's main is: a body, and an end with one of the exit codes whatever happens in it.
#pragma once

#include "ir/Error.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace gpt2c {

/// Runs `body`, sees that what it printed has arrived, prints the error, if any, to stderr and
/// returns the process's exit code. Memory and threads that the system refuses, in this thread or
/// in another, end with OutOfMemory. Files that are being written are removed where a signal ends
/// the process.
int runTool(llvm::function_ref<llvm::Error()> body);

/// An Io error where what was printed to stdout did not arrive.
llvm::Error flushOutput();

} // namespace gpt2c

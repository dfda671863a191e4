// What the main of a tool that only runs plans is: a body, and an end with one of the exit codes
// whatever happens in it.
#pragma once

#include "runtime/Status.h"

#include <functional>

namespace gpt2c {

/// Runs `body`, sees that what it printed to std::cout has arrived, prints the error, if any, to
/// stderr and returns the process's exit code. Memory and threads that the system refuses, in this
/// thread or in another, end with OutOfMemory. Files that are being written are removed where a
/// signal ends the process.
int runTool(const std::function<rt::Status()> &body);

/// What runTool() begins with.
void beginTool();
/// Ends the process at once, without memory: other threads go on, and destructors may wait for
/// them.
[[noreturn]] void endOutOfMemory(const char *what);

/// An Io error where what was printed to std::cout did not arrive.
rt::Status flushStdout();

/// The status with "`context`: " ahead of its message, where it is an error.
rt::Status inContext(const std::string &context, const rt::Status &status);

} // namespace gpt2c

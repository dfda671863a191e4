// The tools beside this one that have the compiler, which does what takes one.
#pragma once

#include "runtime/Status.h"

#include <string>
#include <vector>

namespace gpt2c {

/// Becomes the tool `name` in the folder of this one: the process goes on as that. Returns only
/// where it is not there, with `what` that takes it.
rt::Status becomeSibling(const std::string &name, const std::vector<std::string> &arguments,
                         const std::string &what);

/// What the tool `name` writes to standard output. An error with what it says on standard error
/// where it ends with another code than 0.
rt::Result<std::string> askSibling(const std::string &name,
                                   const std::vector<std::string> &arguments);

} // namespace gpt2c

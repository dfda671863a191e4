// Files that a command line names; "-" is standard input or output.
#pragma once

#include "runtime/Status.h"

#include <span>
#include <string>

namespace gpt2c {

/// The whole of a file, or of standard input for "-". An Io error when it cannot be read.
rt::Result<std::string> readInput(const std::string &path);

/// A path as the command line gives it, "" where it does not, and the flag it is given with.
struct NamedPath {
  std::string flag, path;
};

/// A Usage error where one of `outputs` is the file that one of `inputs` is, whatever its name, or
/// where two outputs are one. "-", pipes and devices are nobody's.
rt::Status checkOutputs(std::span<const NamedPath> outputs, std::span<const NamedPath> inputs);

/// Writes a file, or standard output for "-". The file appears whole or not at all.
rt::Status writeOutput(const std::string &path, const std::string &text);

/// Lets the process have as many open files and connections as the system grants it.
void raiseFileLimit();

} // namespace gpt2c

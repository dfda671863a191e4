// What every tool's command line has in common: options in one category, --version, "-" for
// standard input and output.
#pragma once

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"

#include <memory>

namespace gpt2c {

/// Options outside this category (those of the LLVM libraries) are not shown by --help.
llvm::cl::OptionCategory &toolCategory();
inline auto category() { return llvm::cl::cat(toolCategory()); }

/// Parses the command line; prints to stderr and exits with 1 where it is wrong.
void parseCommandLine(int argc, char **argv, llvm::StringRef overview);

/// The whole of a file, or of standard input for "-". An Io error when it cannot be read.
llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> readInput(llvm::StringRef path);

/// A path as the command line gives it, "" where it does not, and the flag it is given with.
struct FlagPath {
  llvm::StringRef flag, path;
};

/// A Usage error where one of `outputs` is the file that one of `inputs` is, whatever its name, or
/// where two outputs are one. "-", pipes and devices are nobody's.
llvm::Error checkOutputs(llvm::ArrayRef<FlagPath> outputs, llvm::ArrayRef<FlagPath> inputs);

/// Writes a file, or standard output for "-", through `write`. The file appears whole or not at
/// all.
llvm::Error writeOutput(llvm::StringRef path, llvm::function_ref<void(llvm::raw_ostream &)> write);

} // namespace gpt2c

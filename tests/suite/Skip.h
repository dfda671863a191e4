// For suites: how one ends that this machine has not what it takes for.
#pragma once

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdlib>
#include <source_location>

namespace gpt2c::suite {

/// Prints the line "skipped: WHY", of the first line of `why`; the exit code of a test that is
/// skipped.
inline int skipped(llvm::StringRef why,
                   std::source_location from = std::source_location::current()) {
  if (const char *log = std::getenv("GPT2C_SKIP_LOG")) { // tests/skips asks from where
    std::error_code error;
    llvm::raw_fd_ostream(log, error, llvm::sys::fs::OF_Append)
        << from.file_name() << ":" << from.line() << "\n";
  }
  llvm::outs().flush();
  llvm::errs() << "skipped: " << why.split('\n').first << "\n";
  return 77;
}

} // namespace gpt2c::suite

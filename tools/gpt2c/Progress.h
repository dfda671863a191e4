// What gpt2c -v tells.
#pragma once

#include "llvm/ADT/Twine.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>

namespace gpt2c {

/// Prints what was done and the time since the last call, if it is asked to.
class Progress {
public:
  explicit Progress(bool verbose) : verbose_(verbose) {}
  void done(const llvm::Twine &what) {
    auto now = std::chrono::steady_clock::now();
    if (verbose_)
      llvm::errs() << llvm::format("%8.2f s  ", std::chrono::duration<double>(now - last_).count())
                   << what << "\n";
    last_ = now;
  }

private:
  bool verbose_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

} // namespace gpt2c

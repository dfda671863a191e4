// Collects the statistics of activations that quantisation takes scales from.
#pragma once

#include "ir/Function.h"
#include "passes/Calibration.h"
#include "runtime/Backend.h"

#include <functional>

namespace gpt2c {

struct CalibrateOptions {
  int64_t maxTokens = 16384; ///< of the text
  int64_t window = 512;      ///< tokens a sequence; at most the model's context
  /// Called after each window.
  std::function<void(int64_t done, int64_t windows)> progress = nullptr;
};

/// Runs the text through @forward, a module's function in front of the stage `quantised`, on the
/// host, and looks at the input of every product with weights.
llvm::Expected<Calibration> calibrate(const Function &forward, const rt::Tokens &tokens,
                                      const CalibrateOptions &options);

} // namespace gpt2c

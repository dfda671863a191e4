// Collects the statistics of activations that quantisation takes scales from.
#pragma once

#include "ir/Function.h"
#include "passes/quantize/Calibration.h"
#include "tools/common/verification/TextForward.h"

namespace gpt2c {

struct CalibrateOptions {
  int64_t maxTokens = 16384; ///< of the text
  int64_t window = 512;      ///< tokens a sequence; at most the model's context
  /// Products of channels are kept for blocks of up to so many; 0: none.
  int64_t productChannels = 0;
  /// Makes what runs a copy of the function that has further results.
  std::function<llvm::Expected<std::unique_ptr<TextForward>>(const Function &observed)> open;
  /// Called after each window.
  std::function<void(int64_t done, int64_t windows)> progress = nullptr;
};

/// Runs the text through @forward, a module's function in front of the stage `quantised`, and looks
/// at the input of every product with weights.
llvm::Expected<Calibration> calibrate(const Function &forward, const rt::Tokens &tokens,
                                      const CalibrateOptions &options);

} // namespace gpt2c

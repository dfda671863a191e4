// The command line's options of quantisation, for the tools that run passes.
#pragma once

#include "passes/quantize/Quantization.h"

#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace gpt2c {

/// What the command line asks for, statistics read from --load-calibration. Errors of usage and of
/// reading.
llvm::Expected<QuantizeOptions> quantizeFlags();

/// Whether there may be widened forms of functions, see QuantizeOptions::widenWeights, which are
/// made where somebody chooses among them or --widen-weights is given.
bool mayWidenWeights();

/// The options as given, for the plan's record; empty when none is.
std::vector<std::string> quantizeFlagTexts();

} // namespace gpt2c

// gpt2c --calibrate-target: measures what estimates are in proportion to.
#pragma once

#include "schedule/cost/TargetRates.h"
#include "tools/common/flags/DeviceName.h"

#include "llvm/Support/Error.h"

#include <string>

namespace gpt2c {

struct MeasuredTarget {
  std::string device; ///< as the driver names it
  TargetRates rates;
};

/// Measures on that GPU, in seconds. Errors: those of the GPU and of NVRTC.
llvm::Expected<MeasuredTarget> measureTarget(const DeviceName &device, llvm::StringRef cudaPath);

/// The rates of --target, those of an H200 where it is empty. Errors: Usage, IO.
llvm::Expected<TargetRates> targetFlag(llvm::StringRef nameOrPath);

} // namespace gpt2c

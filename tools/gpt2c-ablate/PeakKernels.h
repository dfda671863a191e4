// The kernels that gpt2c-bench measures a GPU's peak with.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <vector>

namespace gpt2c {

/// Machine code of templates/peak.cuh for a compute capability: "9.0".
llvm::Expected<std::vector<char>> peakKernels(llvm::StringRef capability);

} // namespace gpt2c

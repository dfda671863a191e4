// Why a kernel is chosen.
#pragma once

#include "schedule/Target.h"

#include "llvm/Support/Error.h"

namespace gpt2c {

/// Every kernel of a family with its configurations and costs for a problem, or why it refuses it
/// or is not taken. The first word of `problem` is the family: linear (if none), attention, mlp.
llvm::Expected<std::string> explainKernels(llvm::StringRef problem, const Target &target);

} // namespace gpt2c

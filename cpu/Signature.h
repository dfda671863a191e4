// Ports of the functions in a plan's IR, as the metadata of a plan with kernels states them.
#pragma once

#include "ir/Function.h"
#include "plan_generated.h"

namespace gpt2c {

/// Name, symbols, inputs and outputs of `f`; no steps. A symbol has no bound.
std::unique_ptr<plan::FunctionT> signatureOf(const Function &f);

} // namespace gpt2c

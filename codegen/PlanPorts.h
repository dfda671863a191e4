// What a plan says of the model around its functions: the KV state, and what the exported graph
// takes and gives.
#pragma once

#include "codegen/Codegen.h"

namespace gpt2c {

/// Writes the vocabulary's size and the KV state, if there is one, into `meta`. An export that
/// takes one number of sequences alone sets maxBatch of `options` to it. Errors: OutOfMemory, if
/// the state takes more than options.kvBudget.
llvm::Error describeKv(const Module &module, CodegenOptions &options, plan::PlanT &meta);

/// Writes exported_inputs and exported_outputs of `meta`, whose KV state is known. Errors: those of
/// exportedInputs() and exportedOutputs().
llvm::Error describePorts(const Module &module, plan::PlanT &meta);

/// The divisions among ranks that the module has functions for.
void describeRanks(const Module &module, plan::PlanT &meta);

} // namespace gpt2c

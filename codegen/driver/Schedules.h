// The schedules of a module by the kernels there are.
#pragma once

#include "codegen/Codegen.h"
#include "schedule/FunctionSchedule.h"

namespace gpt2c {

/// Of a module whose KV state and sequences are those that `options` allow.
VersionScheduler schedulerOf(const Module &module, const CodegenOptions &options,
                             const Target &target);

/// The text of every function's versions, or why it has no kernels, for each kind of architecture.
void printSchedules(const Module &module, const CodegenOptions &options, llvm::raw_ostream &os);
/// The same of what they are estimated to take.
void printEstimates(const Module &module, const CodegenOptions &options, llvm::raw_ostream &os);

} // namespace gpt2c

// What gpt2c says of a plan beside the remarks of the passes.
#pragma once

#include "codegen/Codegen.h"
#include "passes/Pass.h"
#include "verify/CheckPlan.h"

namespace gpt2c {

/// "42 kernels for sm_90a: 2 compiled, 40 from /home/me/.cache/gpt2c"
std::string describeKernels(const KernelBuildStats &stats, const CodegenOptions &options);

/// What the code generator decided and what it could not do.
void addRemarks(const GeneratedPlan &plan, llvm::ArrayRef<std::string> archs,
                std::vector<Remark> &remarks);

/// Which divisions among GPUs are estimated to be no faster than one: who loads one is told.
void addParallelRemarks(const Module &module, const CodegenOptions &options,
                        const plan::PlanT &meta, std::vector<Remark> &remarks);

/// What was not compared with the exported graph.
void addRemarks(const CheckReport &report, std::vector<Remark> &remarks);

} // namespace gpt2c

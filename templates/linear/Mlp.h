// Both products of an MLP, as kernels are asked about them, and the choice among those kernels.
#pragma once

#include "codegen/Lowering.h"
#include "schedule/MlpProblem.h"

namespace gpt2c {

/// What a kernel's record launches its kernel with.
struct MlpLaunch {
  StepBuilder &b;
  Op &output, &hidden;
  const MlpProblem &p;
  const Op *ahead; ///< attention behind it, whose state may be brought into L2; null: none
};

template <typename Config> using MlpKernelOf = KernelOf<MlpProblem, MlpLaunch, Config>;

#define MLP_KERNEL(name) const MlpKernel &name##Kernel();
#include "templates/linear/MlpKernels.def"
#undef MLP_KERNEL

llvm::ArrayRef<const MlpKernel *> mlpKernels();
/// Every kernel and configuration that may compute it, the choice of the cost model first. None: it
/// has two launches.
std::vector<MlpCandidate> mlpCandidates(const MlpProblem &p);

/// Every kernel, or why it refuses or is not taken.
std::string explainMlp(const MlpProblem &p);
/// An MLP as explain takes it: "rows=32 d=768 hidden=3072 f16 gelu_tanh".
llvm::Expected<MlpProblem> parseMlpProblem(llvm::StringRef text, const Target &target);

} // namespace gpt2c

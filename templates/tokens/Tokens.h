// The tokens of a step: the last of each sequence, the greedy choice, the bookkeeping.
#pragma once

#include "codegen/Lowering.h"

namespace gpt2c {

struct GatherLastConfig {
  Scalar x = Scalar::F16;
  int d = 0, threads = 128;
};

KernelSource gatherLast(llvm::StringRef name, const GatherLastConfig &config);

struct ArgmaxConfig {
  Scalar x = Scalar::F32;
  int threads = 256;
};

KernelSource argmax(llvm::StringRef name, const ArgmaxConfig &config);

KernelSource argmaxParts(llvm::StringRef name);

KernelSource advance(llvm::StringRef name);

llvm::Error lowerGatherLast(StepBuilder &b, Op &op);
llvm::Error lowerArgMax(StepBuilder &b, Op &op);

} // namespace gpt2c

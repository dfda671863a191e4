// The tokens of a step: the last of each sequence, the greedy choice, the bookkeeping.
#pragma once

#include "codegen/Grid.h"
#include "codegen/Lowering.h"
#include "schedule/Schedule.h"

namespace gpt2c {

struct GatherLastConfig {
  Scalar x = Scalar::F16;
  int d = 0, threads = 128;
};

KernelSource gatherLast(llvm::StringRef name, const GatherLastConfig &config);
Grid gridOf(const GatherLastConfig &c, const plan::ExprT &sequences);

struct ArgmaxConfig {
  Scalar x = Scalar::F32;
  int threads = 256;
  int parts = 16; ///< blocks that share a row
};

KernelSource argmax(llvm::StringRef name, const ArgmaxConfig &config);
Grid gridOf(const ArgmaxConfig &c, const plan::ExprT &rows);

KernelSource argmaxParts(llvm::StringRef name);
Grid argmaxPartsGrid(const plan::ExprT &rows);

KernelSource advance(llvm::StringRef name);

llvm::Error lowerGatherLast(StepBuilder &b, Op &op);
llvm::Error lowerArgMax(StepBuilder &b, Op &op);
llvm::Error emitLargest(StepBuilder &b, const LargestGroup &group);

} // namespace gpt2c

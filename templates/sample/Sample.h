// The choice of tokens from logits by temperature, top-k, top-p, min-p and penalties.
#pragma once

#include "codegen/Grid.h"
#include "codegen/KernelSource.h"
#include "schedule/Target.h"

namespace gpt2c {

/// The weights of more tokens than that could sum to more than a double has digits, and keys of
/// scores have no room for more ids.
inline constexpr int64_t mostSampledVocabulary = 1 << 18;

struct SampleConfig {
  int64_t vocabulary = 0;
  int blocks = 1; ///< of a row: a cluster, or 1
  int threads = 512;
  bool held = false; ///< a block keeps its logits in shared memory
  int rehearsed = 0; ///< calls of up to so many rows rehearse before the logits are there
};

/// As few blocks a row as have room for its logits: for many rows, or rows of which few candidates
/// are looked at twice.
SampleConfig sampleConfig(int64_t vocabulary, const Target &target);
/// Many blocks, for up to mostSpreadRows rows of which all logits are looked at again and again.
SampleConfig spreadSampleConfig(int64_t vocabulary, const Target &target);
inline constexpr int64_t mostSpreadRows = 64;
/// Rows whose blocks have multiprocessors beside a step in clusters, which starts them early.
inline constexpr int mostRehearsedRows = 4;
KernelSource sample(llvm::StringRef name, const SampleConfig &config);
Grid gridOf(const SampleConfig &c, const plan::ExprT &rows);

} // namespace gpt2c

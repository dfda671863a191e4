// The choice of tokens from logits by temperature, top-k, top-p, min-p and penalties.
#pragma once

#include "codegen/Grid.h"
#include "codegen/KernelSource.h"
#include "codegen/Target.h"

namespace gpt2c {

/// The weights of more tokens than that could sum to more than a double has digits.
inline constexpr int64_t mostSampledVocabulary = 1 << 18;

struct SampleConfig {
  int64_t vocabulary = 0;
  int blocks = 8; ///< of a row: a cluster, or 1
  int threads = 256;
  int sharedBytes = 40 << 10; ///< a block has room for so many bytes of logits
};

SampleConfig sampleConfig(int64_t vocabulary, const Target &target);
KernelSource sample(llvm::StringRef name, const SampleConfig &config);
Grid gridOf(const SampleConfig &c, const plan::ExprT &rows);

} // namespace gpt2c

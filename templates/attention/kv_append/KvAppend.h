// kv_append: new keys and values into the KV state, in a launch of its own.
#pragma once

#include "codegen/KernelSource.h"

namespace gpt2c {

struct KvAppendConfig {
  Scalar x = Scalar::F16, kv = Scalar::F16;
  int headDim = 0, heads = 0, threads = 128;
  int kvHeads = 0; ///< of the state; 0: heads
};

KernelSource kvAppend(llvm::StringRef name, const KvAppendConfig &config);

} // namespace gpt2c

// kv_append: new keys and values into the KV state, in a launch of its own.
#pragma once

#include "codegen/KernelSource.h"

namespace gpt2c {

struct KvAppendConfig {
  Scalar x = Scalar::F16, kv = Scalar::F16;
  int headDim = 0, heads = 0, threads = 128;
  int kvHeads = 0; ///< of the state; 0: heads
};

/// Into pages of bytes.
struct KvAppendPagesConfig {
  Scalar x = Scalar::F16, kv = Scalar::I8;
  int headDim = 0, heads = 0, kvHeads = 0, pageTokens = 64, threads = 256;
};

KernelSource kvAppend(llvm::StringRef name, const KvAppendConfig &config);
KernelSource kvAppendPages(llvm::StringRef name, const KvAppendPagesConfig &config);

} // namespace gpt2c

// One kernel as CUDA text, an instance of a template, with what a launch needs to know of it.
#pragma once

#include "schedule/Scalar.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <string>
#include <vector>

namespace gpt2c {

/// One kernel. `params` names the parameters in order, so that a plan can describe the arguments.
struct KernelSource {
  std::string name;
  std::vector<std::string> headers;
  std::string text;
  std::vector<std::string> params;
  std::vector<std::string> optional; ///< those of them that may be null
  unsigned threads = 0;
  unsigned sharedBytes = 0;
};

/// One module with all of `kernels`: their headers once, then their texts.
std::string moduleSource(llvm::ArrayRef<KernelSource> kernels);

} // namespace gpt2c

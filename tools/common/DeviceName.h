// What --device names.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace gpt2c {

/// auto, cuda, cuda:N or cpu.
struct DeviceName {
  enum class Kind { Auto, Cuda, Cpu };
  Kind kind = Kind::Auto;
  int ordinal = 0; ///< of the GPU, in CUDA's order
};

/// Error: Usage, with the names that there are.
llvm::Expected<DeviceName> parseDeviceName(llvm::StringRef text);

} // namespace gpt2c

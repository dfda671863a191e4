// Tensor files of the ONNX test-data convention (input_0.pb, output_0.pb).
#pragma once

#include "ir/Tensor.h"

#include "llvm/Support/Error.h"

#include <string>

namespace gpt2c {

struct NamedTensor {
  std::string name; // may be empty
  Tensor tensor;
};

llvm::Expected<NamedTensor> readTensorProto(llvm::StringRef path);

} // namespace gpt2c

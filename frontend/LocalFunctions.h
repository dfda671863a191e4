// Model-local functions (ModelProto.functions) and their expansion.
#pragma once

#include "onnx.pb.h"

#include "llvm/ADT/StringMap.h"

#include <memory>

namespace gpt2c {

class LocalFunctions {
public:
  explicit LocalFunctions(const onnx::ModelProto &model);
  /// The function a node calls; null when it calls none.
  const onnx::FunctionProto *find(const onnx::NodeProto &node) const;

private:
  llvm::StringMap<const onnx::FunctionProto *> functions_;
};

/// The body of `function` for one call: references to the function's attributes are replaced by the
/// values given by `call` or by the defaults, or removed where there are neither.
std::shared_ptr<onnx::FunctionProto> instantiate(const onnx::FunctionProto &function,
                                                 const onnx::NodeProto &call);

} // namespace gpt2c

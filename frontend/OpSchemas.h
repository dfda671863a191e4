// Which inputs and attributes the operators of OpTable.cpp have.
#pragma once

#include "onnx.pb.h"

#include "llvm/ADT/StringRef.h"

#include <optional>
#include <string>

namespace gpt2c {

/// What a node has that its operator does not in that opset: an attribute, too many inputs. Such a
/// node means something that would be lost. None where it fits, and of operators that are not in
/// the table.
std::optional<std::string> schemaMismatch(llvm::StringRef domain, const onnx::NodeProto &node,
                                          int64_t opset);

} // namespace gpt2c

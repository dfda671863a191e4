// Names and order in an ONNX graph.
#pragma once

#include "onnx.pb.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace gpt2c {

/// The node's name, or "<op_type>:<first output>" where it has none.
std::string nodeName(const onnx::NodeProto &node);
/// "node 'x' (Add)" for messages.
std::string describeNode(const onnx::NodeProto &node);

/// The domain with the alias "ai.onnx" resolved to "".
llvm::StringRef canonicalDomain(llvm::StringRef domain);

/// The tensors a node reads: its inputs and, for control flow, what its sub-graphs take from
/// outside.
void forEachRead(const onnx::NodeProto &node, llvm::function_ref<void(llvm::StringRef)> f);

struct OrderedNodes {
  /// The nodes that contribute to `outputs`, definitions before uses, otherwise as they stand in
  /// the file.
  std::vector<const onnx::NodeProto *> nodes;
  /// Every tensor that one of them reads, and the outputs.
  llvm::StringSet<> read;
  /// Tensors that several Constant nodes write; the last one in the file counts, as in ONNX
  /// Runtime.
  std::vector<std::string> redefined;
};

/// Checks that every tensor is defined once (but see `redefined`), that every tensor read is
/// defined, and that there is no cycle. `isDefined` knows the tensors that exist before the first
/// node: inputs, initializers, the enclosing graph. Fails with InvalidModel.
llvm::Expected<OrderedNodes>
orderNodes(const google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes,
           llvm::function_ref<bool(llvm::StringRef)> isDefined,
           const std::vector<std::string> &outputs);

} // namespace gpt2c

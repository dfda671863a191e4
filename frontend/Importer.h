// The walk over a model's graph, from protobuf messages to ops.
#pragma once

#include "frontend/LocalFunctions.h"
#include "frontend/NodeLowering.h"
#include "frontend/Symbols.h"
#include "frontend/UnsupportedList.h"
#include "frontend/files/ExternalFiles.h"
#include "ir/Builder.h"

#include "onnx.pb.h"

namespace gpt2c {

class Importer {
public:
  /// External weights are looked for below `folder`.
  using Warn = std::function<void(const std::string &)>;
  Importer(std::shared_ptr<const onnx::ModelProto> model, std::string folder, Warn warn,
           ExternalFiles::Opened externalFile = nullptr)
      : model_(std::move(model)), functions_(*model_),
        files_(std::move(folder), std::move(externalFile)), warn_(std::move(warn)) {}

  llvm::Expected<std::unique_ptr<Module>> run();

private:
  using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;
  using Opsets = llvm::StringMap<int64_t>;

  /// The tensors visible in one graph, branch or function body. A value is null when it could not
  /// be translated.
  struct Scope {
    const Scope *parent = nullptr;
    const Opsets *opsets = nullptr;
    std::string prefix; // of locations, inside functions
    llvm::StringMap<Binding> values;
    llvm::StringMap<const onnx::TensorProto *> initializers; // not yet turned into constants
    bool defines(llvm::StringRef name) const;
    /// The initializer of that name if its elements have four bits; null otherwise. They have eight
    /// in the IR: what rounds to their type would not be the same there.
    const onnx::TensorProto *ofSteps(llvm::StringRef name) const;
  };

  llvm::Error addInputs(const onnx::GraphProto &graph, Scope &scope);
  llvm::Expected<Type> inputType(const onnx::ValueInfoProto &input);
  llvm::Error addInitializers(const onnx::GraphProto &graph, Scope &scope);
  /// Translates what `outputs` need and returns what they stand for.
  llvm::Expected<std::vector<Binding>>
  lowerBody(const Nodes &nodes, const std::vector<std::string> &outputs, Scope &scope);
  llvm::Error lowerNode(const onnx::NodeProto &node, const llvm::StringSet<> &read, Scope &scope);
  llvm::Error lowerOperator(const onnx::NodeProto &node, const llvm::StringSet<> &read,
                            Scope &scope);
  llvm::Error lowerCall(const onnx::NodeProto &node, const onnx::FunctionProto &function,
                        Scope &scope);
  llvm::Error lowerIf(const onnx::NodeProto &node, Scope &scope);
  llvm::Expected<Binding> lookUp(llvm::StringRef name, Scope &scope);
  llvm::Expected<int64_t> opsetOf(const onnx::NodeProto &node, const Scope &scope);
  void reject(const onnx::NodeProto &node, int64_t opset, llvm::StringRef reason, Scope &scope);
  llvm::Error setOutputs(const onnx::NodeProto &node, llvm::ArrayRef<Binding> values, Scope &scope);

  std::shared_ptr<const onnx::ModelProto> model_;
  LocalFunctions functions_;
  ExternalFiles files_;
  Warn warn_;
  Symbols symbols_;
  ConstantPool pool_;
  UnsupportedList unsupported_;
  Function *main_ = nullptr;
  std::vector<const onnx::FunctionProto *> callStack_;
  unsigned nodesLowered_ = 0;
};

struct ImportOptions;

/// Where remarks on the model of that name go.
std::function<void(const std::string &)> warnOf(const ImportOptions &options, llvm::StringRef name);

/// A graph in memory; `name` stands for its path in messages.
llvm::Expected<std::unique_ptr<Module>> importGraph(std::shared_ptr<const onnx::ModelProto> model,
                                                    llvm::StringRef name,
                                                    const ImportOptions &options);

} // namespace gpt2c

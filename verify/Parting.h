// Where a plan and the exported graph part: the first tensor that differs, named by ONNX node.
#pragma once

#include "verify/PlanRunner.h"

namespace gpt2c {

/// A function of `module` over the call's texts. The first `cut` tokens of each are in the state by
/// then; @decode takes one token.
struct PartingCall {
  llvm::StringRef function;
  const GraphCall *call = nullptr;
  llvm::ArrayRef<Tensor> arguments; ///< of the graph
  int64_t cut = 0;
};

struct Parting {
  std::string text;
  /// The largest magnitude that the exported graph computes for that tensor, of all of its tensors
  /// where none is found.
  double largest = 0;
};

/// `text`: two lines that name the first tensor of the function that differs by more than
/// `tolerance` from the tensor it stands for, and that one. Values stand for each other when their
/// ops have an ONNX node in common and they have equally many elements. One that differs, but from
/// which values follow that do not, is another form of the same thing. Empty when there is no such
/// pair.
Parting findParting(const ExportedGraph &graph, const Module &module, const PartingCall &call,
                    double tolerance, bool float64);

} // namespace gpt2c

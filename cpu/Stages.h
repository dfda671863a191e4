// Layers dealt to ranks that stand behind each other: pipeline parallel on the CPU device.
//
// The functions of the plan stay as they are. A stage computes the values between two cuts, from
// the one that the stage before handed on, and what follows from arguments alone. A cut lies where
// one value, of all that layers make, is all that later ops need: between two layers. The KV state
// of a layer is with the stage that has the layer.
#pragma once

#include "ir/Executor.h"
#include "ir/Group.h"

#include <vector>

namespace gpt2c {

/// How many layers are in front of each cut: `stages` - 1 numbers that make what the stage with
/// most of it has of `bytes`, one number for each layer, as few as can be. Each stage has a layer;
/// there are no fewer layers than stages.
std::vector<int64_t> dealLayers(llvm::ArrayRef<int64_t> bytes, int64_t stages);

/// The same by the weights that the function's ops read, those of the vocabulary with the last
/// layer. Errors: Unsupported: there are fewer layers than stages.
llvm::Expected<std::vector<int64_t>> cutLayers(const Function &f, int64_t stages);

/// A function as the stages of a group run it.
class StagedFunction {
public:
  /// Unsupported where more than one value crosses a cut. `cuts`: of cutLayers().
  static llvm::Expected<StagedFunction> create(const Function &f, llvm::ArrayRef<int64_t> cuts);

  /// All results, the same on every rank, but the KV state's: of that a rank has its layers. All
  /// ranks of the group call it together.
  llvm::Expected<std::vector<Tensor>> run(Executor &executor, llvm::ArrayRef<Tensor> arguments,
                                          SymbolMap symbols, Group &group) const;

private:
  struct Cut {
    Value *handed; ///< what the layers in front of it made
    Value *state;  ///< the KV state behind those layers
  };
  const Function *f_ = nullptr;
  std::vector<Cut> cuts_;
};

/// `mine` of rank `from` on every rank; the others' have the same size.
llvm::Error broadcast(Group &group, int from, llvm::MutableArrayRef<char> mine);

} // namespace gpt2c

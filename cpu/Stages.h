// Layers dealt to ranks that stand behind each other: pipeline parallel on the CPU device.
//
// The functions of the plan stay as they are. A stage computes the values between two cuts, from
// those that the stage before handed on, and what follows from arguments alone. A cut lies between
// two layers, where as few values as can be, of all that layers make, are what later ops need. The
// KV state of a layer is with the stage that has the layer.
#pragma once

#include "ir/Executor.h"
#include "runtime/group/RankLink.h"

#include "llvm/ADT/DenseSet.h"

#include <vector>

namespace gpt2c {

/// The same by the weights that the function's ops read, those of the vocabulary with the last
/// layer: rt::dealLayers(). Errors: Unsupported: there are fewer layers than stages.
llvm::Expected<std::vector<int64_t>> cutLayers(const Function &f, int64_t stages);

/// A function as one of the stages of a group runs it.
class StagedFunction {
public:
  /// Unsupported where the function has no such layers. `cuts`: of cutLayers().
  static llvm::Expected<StagedFunction> create(const Function &f, llvm::ArrayRef<int64_t> cuts,
                                               int stage);

  /// Whether this stage computes it.
  bool has(const Op &op) const { return mine_.contains(&op); }

  struct Run {
    std::vector<Tensor> arguments;
    SymbolMap symbols;
  };
  /// Several runs of the function, one after the other: while a stage has the second, the next has
  /// the first. Of each all results, the same on every rank, but the KV state's: of that a rank has
  /// its layers. All ranks of the group call it together.
  llvm::Expected<std::vector<std::vector<Tensor>>> run(Executor &executor, llvm::ArrayRef<Run> runs,
                                                       rt::RankLink &link) const;

private:
  struct Cut {
    llvm::SmallVector<Value *, 2> handed; ///< what the layers in front of it made
    Value *state;                         ///< the KV state behind those layers
  };
  void findMine();
  llvm::Error runOne(Executor &executor, const Run &run, rt::RankLink &link,
                     std::vector<Tensor> &results, SymbolMap &symbols) const;
  llvm::SmallVector<Value *> wanted() const;

  const Function *f_ = nullptr;
  std::vector<Cut> cuts_;
  int stage_ = 0;
  llvm::DenseSet<const Op *> mine_;
};

} // namespace gpt2c

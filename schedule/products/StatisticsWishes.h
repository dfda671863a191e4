// Whose rows' statistics products wait for, to take a norm out of their sums: what readers wish,
// before anybody has chosen a kernel.
#pragma once

#include "schedule/Problems.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace gpt2c {

class StatisticsWishes {
public:
  StatisticsWishes(Function &f, const Problems &problems, const LinearFamily &kernels,
                   llvm::ArrayRef<const MlpKernel *> mlps);

  /// Whether products take a norm of `v` out of their sums where its statistics are known.
  bool of(const Value *v) const { return weights_.count(v); }
  /// Whether a product should leave statistics of its result: somebody wants them, or those of a
  /// product that differs in its operands alone, since to leave some that nobody reads costs less
  /// than a kernel without them.
  bool ofResult(const Op &product) const { return wished_.contains(&product); }
  /// Columns of a part of the statistics that products leave for readers like those of `v`, so that
  /// one kernel reads both; the whole row where there are none.
  int64_t widthOfPeers(const Value *v) const;

private:
  const Type *normedWeights(const Value *v) const;
  bool pays(const Value *v, const LinearProblem &p) const;
  bool isOfMlp(const Op &product, const ProductSite &site) const;

  const Function &f_;
  const Problems &problems_;
  const LinearFamily &kernels_;
  const llvm::ArrayRef<const MlpKernel *> mlps_;
  /// The type of the weights of the product that takes a norm of a value out of its sums.
  llvm::DenseMap<const Value *, const Type *> weights_;
  llvm::DenseSet<const Op *> wished_; ///< products of which ofResult() holds
};

} // namespace gpt2c

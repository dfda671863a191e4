// Which products of a function ranks compute in columns of their own.
#pragma once

#include "ir/Function.h"
#include "passes/Remark.h"
#include "passes/shard/Cut.h"

#include "llvm/ADT/DenseMap.h"

#include <optional>
#include <utility>

namespace gpt2c {

/// What the builder of a rank's function follows: these products have the columns of their cut;
/// what is cut stays so as far as ops treat columns by themselves, and a product of it is a part of
/// a sum.
struct ShardPlan {
  int64_t ranks = 0;
  HeadDeal heads;
  llvm::DenseMap<const Op *, Cut> columns;
  /// What every rank computes whole that could have been cut, "all of linear: why".
  std::vector<Obstacle> whole;
};

/// An error where the attention of `f` cannot be dealt to so many ranks: the numbers, or the op.
llvm::Expected<ShardPlan> planShards(const Function &f, int64_t ranks);

/// Whether `op` is a product of rows with constant weights [N, K] that takes its rows as they are.
bool isProductOfWeights(const Op &op);
/// Elements of a row of weights that share a scale; 1 where all do, or there is none.
int64_t weightGroup(const Op &product);
/// Whether `op` computes each element from the same element of its operands.
bool isElementwise(const Op &op);
/// Whether `op` takes some rows of its first operand, whole.
bool takesRows(const Op &op);
/// The columns [first, second) that a slice of nothing else takes.
std::optional<std::pair<int64_t, int64_t>> sliceOfColumns(const Op &op);

} // namespace gpt2c

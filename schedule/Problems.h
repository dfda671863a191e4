// Ops as the problems that kernels are asked about.
#pragma once

#include "schedule/Scheduler.h"
#include "schedule/cost/Bounds.h"

namespace gpt2c {

/// The statistics that values were left with.
using KnownStatistics = llvm::DenseMap<const Value *, RowStatistics>;

/// The product behind one that is the first of an MLP; null: it is not.
struct MlpSite {
  Op *output = nullptr;
  std::optional<LinearProblem> problem = {};
};

class Problems {
public:
  Problems(const SymbolBounds &bounds, const ScheduleOptions &options)
      : bounds_(bounds), options_(options) {}

  /// The largest value of `d`.
  int64_t maximum(const Dim &d) const { return rangeOf(d, bounds_).hi; }
  bool batchInvariant() const { return options_.orders != nullptr; }

  /// A product with weights of constant size.
  LinearProblem linear(const Op &product) const;
  /// The same, and what stands around it, but for wishes of others.
  ProductSite site(const Op &product, llvm::ArrayRef<const ProductEnd *> ends,
                   const KnownStatistics &known = KnownStatistics()) const;
  /// Of a linear; none in a batch-invariant plan.
  MlpSite mlp(const Op &hidden) const;
  /// Without what quantises the value, and without what turns queries and keys.
  AttentionProblem attention(const Op &op) const;
  /// Of attention over pages whose sizes are constant.
  PagedProblem paged(const Op &op) const;

private:
  Op *normBefore(const Op &product) const;
  /// The op behind a product that its kernel may compute, whatever kernels there are: nothing else
  /// reads what the product gives. Null: none may.
  Op *onlyReader(const Op &product) const;

  const SymbolBounds &bounds_;
  const ScheduleOptions &options_;
};

/// Whether its rows are multiplied as they are, with int8 weights.
bool takesInt8Weights(const Op &product);
/// Both products of an MLP, of which `site` is the first one's; a residual that is read in place is
/// taken for another.
MlpProblem mlpProblem(const Op &hidden, const MlpSite &mlp, const ProductSite &site);
/// The lengths of sequences of which the last token alone has a query; null: all tokens have one.
Value *lengthOf(const Op &attention);
/// Heads of the state: its own axis, or what is left of a packed row besides the queries, of which
/// one may be a symbol.
std::optional<int64_t> kvHeadsOf(const Op &attention);
/// Attention over a state in fp16, each head with keys of its own: the first behind `op`, or any of
/// the function; null: there is none.
const Op *stateAttention(const Op &op, bool behind);
/// Heads of attention, and elements of each.
std::pair<int, int> headsOf(const Op &attention);

} // namespace gpt2c

// The decisions about one function, in the order of its ops: each is made once, when all that it
// depends on is known, and kept.
#pragma once

#include "schedule/Scheduler.h"
#include "schedule/products/Operands.h"
#include "schedule/products/StatisticsWishes.h"

#include "llvm/ADT/DenseSet.h"

namespace gpt2c {

/// What tuning files add for a product of int8.
std::string int8Key(const LinearGroup &group);

class FunctionScheduler {
public:
  FunctionScheduler(Function &f, const SymbolBounds &bounds, const ScheduleOptions &options,
                    const Kernels &kernels)
      : f_(f), problems_(bounds, options), options_(options), kernels_(kernels),
        wishes_(f, problems_, kernels.linear, kernels.mlp) {}

  Schedule run();

private:
  void decide(Op &op);
  Group &set(Op &at, Group group) { return groups_[&at] = std::move(group); }
  void setFused(Op &op) { set(op, {DoneGroup{&op, DoneGroup::Fused}}); }

  // Products
  void product(Op &op);
  ProductSite siteOf(const Op &product) const;
  /// Whether attention turns the rows that the rotation turns.
  bool isTurnedByReader(const Op &rotation) const;
  /// How a product with int8 weights comes to its result; why it cannot, or nothing.
  std::optional<std::string> int8(Op &op, LinearGroup &group) const;
  void addInt8Wishes(LinearProblem &p, const Op &op, const Int8Product &form) const;
  /// Takes one of the kernels in `list`.
  void choose(LinearGroup group, std::vector<LinearCandidate> list, std::vector<NearMiss> misses);
  size_t chosen(const LinearGroup &group, llvm::ArrayRef<LinearCandidate> list) const;
  /// Both products and the norm before them as one launch, if a kernel has it.
  bool mlp(Op &hidden, const MlpSite &mlp, const ProductSite &site, std::vector<NearMiss> &misses);

  // Others
  void attention(Op &op);
  void pagedAttention(Op &op);
  Op *fusedRope(const Op &op, const AttentionProblem &p, std::vector<NearMiss> &misses) const;
  void embed(Op &op);
  void argMax(Op &op);
  /// A sum over ranks, and what is added to it behind it.
  AllReduceGroup sumOf(Op &op) const;
  /// What it covers up to the last op has no launch of its own.
  void setCovered(const AllReduceGroup &group);
  void allReduce(Op &op);
  /// Norms and rotations that all who read them compute themselves.
  void finish(Op &op);

  /// Whether products read `v` where a gather_last takes it from.
  bool isReadInPlace(const Value *v) const;

  Function &f_;
  Problems problems_;
  const ScheduleOptions &options_;
  const Kernels &kernels_;
  StatisticsWishes wishes_;
  llvm::DenseMap<const Op *, Group> groups_; ///< by the op whose place among the launches they have
  KnownStatistics statistics_;
  llvm::DenseMap<const Op *, const Op *> inFront_; ///< norms and rotations, by who computes them
  llvm::DenseSet<const Value *> largest_;          ///< results whose largest elements are left
};

} // namespace gpt2c

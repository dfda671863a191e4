// What the functions of a plan share: kernels, weights, and what the plan is made for.
#pragma once

#include "codegen/KernelSource.h"
#include "ir/Tensor.h"
#include "plan_generated.h"
#include "schedule/Target.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace gpt2c {

/// What each of several ranks has of a weight along an axis, as rank_part says it.
struct RankedWeight {
  Tensor whole;
  int64_t axis = 0, unit = 0;
  std::vector<int64_t> units; ///< [ranks, units of a rank]
  int64_t ranks = 0;
};

/// Kernels and weights shared by all functions of a plan.
class PlanPool {
public:
  /// The index of a kernel with this text. Equal kernels are one: the number in a kernel's name
  /// gives way to a hash of the text, so that the same kernel has the same name in every plan.
  int kernel(KernelSource source);
  /// The index of a weight; tensors that share storage or content are one.
  int weight(const Tensor &t);
  /// A constant of a function of ranks that stands for what the rank has of a weight: its type is
  /// that of a part, its bytes are nobody's.
  Tensor standIn(RankedWeight &&part);
  /// What `t` stands for; null: for itself.
  const RankedWeight *partOf(const Tensor &t) const;
  /// What a rank has of `t`: all of it, unless it stands for parts.
  Tensor ofRank(const Tensor &t, int64_t rank) const;
  /// What stands for make(rank) of each rank, of one shape; of one alone, or where all have the
  /// same, that itself.
  Tensor ofRanks(int64_t ranks, llvm::function_ref<Tensor(int64_t rank)> make);
  /// The address of a weight, or of what a rank has of it.
  plan::ArgT address(const Tensor &t);
  /// f32[N], the sums over k of w[N, K] times factors[K]; null: times 1. Of what a rank has where w
  /// stands for that.
  Tensor sumsOf(const Tensor &w, const Tensor *factors, const Tensor *scales = nullptr,
                const Tensor *zeros = nullptr);
  /// The index of the same of a whole weight.
  int rowSums(const Tensor &w, const Tensor *factors, const Tensor *scales = nullptr,
              const Tensor *zeros = nullptr);

  /// The index of `what`, which `make` makes of weights; once for the same ones.
  int derived(llvm::StringRef what, llvm::ArrayRef<const Tensor *> of,
              llvm::function_ref<Tensor()> make);

  /// Matrices of bf16 are in the plan in 12 bits an element (runtime/plan/PackedWeight.h).
  bool packs = false;
  struct PackedPlaces {
    plan::ArgT weights, words; ///< the rows of blocks, and the words of their groups
  };
  /// Where a matrix is packed, which it is then; nothing where it does not pack, or is nobody's.
  std::optional<PackedPlaces> packed(const Tensor &t);
  /// The index of what weight `index` is packed in; nothing where it does not pack.
  std::optional<int> pack(int index);

  /// How the steps are launched.
  plan::LaunchMode launchMode = plan::LaunchMode::Pdl;
  /// What the functions that are made now are for, and its number among those of the plan: kernels
  /// note which of them they have images for.
  Target target;
  size_t targetNumber = 0;
  /// Products of fp32 operands may run on tensor cores, each as three products of TF32.
  bool tf32 = true;

  const std::vector<KernelSource> &kernels() const { return kernels_; }
  /// The numbers of the targets that kernel `index` is for.
  const std::set<size_t> &targetsOf(size_t index) const { return targetsOf_[index]; }
  const std::vector<Tensor> &weights() const { return weights_; }
  /// In the order of their numbers in the plan.
  const std::vector<plan::WeightPartT> &parts() const { return parts_; }
  /// A name no kernel has yet, with a number at its end.
  std::string nextKernelName(llvm::StringRef stem) const;

private:
  std::vector<KernelSource> kernels_;
  std::vector<std::set<size_t>> targetsOf_; ///< each kernel
  std::map<std::string, int> kernelByText_; ///< texts with "@" for the name
  std::vector<Tensor> weights_;
  llvm::DenseMap<uint64_t, int> weightByHash_;
  std::map<const void *, RankedWeight> standIns_; ///< by the addresses of their elements
  std::vector<Tensor> heldStandIns_;              ///< so that no other tensor has their addresses
  std::map<std::array<const void *, 4>, Tensor> sumsOfParts_;
  std::vector<plan::WeightPartT> parts_;
  std::map<int, std::optional<int>> packed_;           ///< by indices of weights
  std::map<std::array<const void *, 4>, int> rowSums_; ///< by the addresses of elements
  std::map<std::pair<std::string, std::vector<const void *>>, int> derived_; ///< likewise
};

} // namespace gpt2c

// What one of several ranks runs of a plan.
#pragma once

#include "ir/Function.h"
#include "ir/Group.h"
#include "runtime/group/RankLink.h"
#include "runtime/plan/PlanFile.h"

#include "llvm/Support/Error.h"

namespace gpt2c {

llvm::Error toError(const rt::Status &s);

/// The ranks of a link's team, for the ops of a rank.
class LinkedGroup : public Group {
public:
  explicit LinkedGroup(rt::RankLink &link) : link_(link) {}
  int rank() const override { return link_.placeInTeam(); }
  int size() const override { return link_.teamSize(); }
  llvm::Error gather(llvm::ArrayRef<char> mine, llvm::MutableArrayRef<char> all) override;

private:
  rt::RankLink &link_;
};

/// Leaves of a plan's module the functions for one rank.
void keepWhole(Module &module);
/// Leaves those for so many ranks that share every layer, under the names that they have for one.
/// Incompatible where the plan has none.
llvm::Error keepDivision(Module &module, const plan::PlanT &meta, int ranks);
/// Parts of weights become constants, those of the group's rank that are `wanted`, of which those
/// that are rows one behind the other stay where they are mapped.
llvm::Error takeParts(Module &module, Group &group, llvm::function_ref<bool(const Op &)> wanted);

} // namespace gpt2c

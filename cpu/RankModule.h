// What one of several ranks runs of a plan.
#pragma once

#include "ir/Function.h"
#include "ir/Group.h"
#include "runtime/group/RankLink.h"
#include "runtime/plan/PlanFile.h"

#include "llvm/Support/Error.h"

namespace gpt2c {

/// The ranks of a link, for the ops of a rank.
class LinkedGroup : public Group {
public:
  explicit LinkedGroup(rt::RankLink &link) : link_(link) {}
  int rank() const override { return link_.rank(); }
  int size() const override { return link_.size(); }
  llvm::Error gather(llvm::ArrayRef<char> mine, llvm::MutableArrayRef<char> all) override;

private:
  rt::RankLink &link_;
};

/// Leaves of a plan's module the functions for one rank.
void keepWhole(Module &module);
/// Leaves those for the ranks of `group`, under the names that they have for one. Parts of weights
/// become constants, of which those that are rows one behind the other stay where they are mapped.
/// Incompatible where the plan has none.
llvm::Error keepRank(Module &module, const plan::PlanT &meta, Group &group);

} // namespace gpt2c

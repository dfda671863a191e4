// The error that each step of a plan adds: what it computed, against what another function computes
// from the same inputs.
#pragma once

#include "verify/Compare.h"
#include "verify/Counterparts.h"

namespace gpt2c {

/// A value of the plan's function as a device left it in memory behind a step.
struct TracedValue {
  size_t step = 0;
  const Value *value = nullptr;
  Tensor tensor;
};

/// What a plan's steps are compared with.
struct StepReference {
  const Function *function = nullptr; ///< the plan's own, or another form of the model
  ExecOptions options = {};
  std::vector<Tensor> arguments; ///< of a run of its own, with a KV state of its own
  /// The same for a run on what the plan's steps read: another KV state, which holds what the
  /// plan's does.
  std::vector<Tensor> onPlan;
  bool own = false; ///< it is the function whose values are traced
  ComparedRows rows;
};

/// A channel (the last axis) or a token (a row), and how far it is off.
struct WorstPart {
  int64_t index = 0;
  double error = 0;
};

struct ValueError {
  size_t step = 0;
  const Value *value = nullptr;
  const Value *standsFor = nullptr; ///< of the reference; null: nothing, and no errors
  llvm::SmallVector<int64_t, 4> shape;
  Difference total; ///< against a run of the reference
  bool hasAdded = false;
  Difference added;   ///< against the reference on the plan's own inputs of the step
  double channel = 0; ///< the largest error of a channel, where `added` is that of a row
  std::vector<WorstPart> channels, tokens; ///< the worst three of what was added, or of the total
  int64_t nans = 0, infinities = 0;
  bool made = false; ///< these, where what the step reads is finite

  /// What the step itself is off by, of a row or a channel.
  double own() const { return hasAdded ? std::max(added.relative, channel) : 0; }
};

/// In the order of `traced`. The error of a channel is the norm of its differences over all rows
/// against that of what is expected, or where that is more the root mean square over all channels:
/// so one row of weights that is wrong stands out. Errors without a code: the reference cannot be
/// run.
llvm::Expected<std::vector<ValueError>> stepErrors(llvm::ArrayRef<TracedValue> traced,
                                                   const StepReference &reference);

/// The total alone, of one value against a tensor from elsewhere.
ValueError valueError(const TracedValue &traced, const Tensor &expected, bool logits);

} // namespace gpt2c

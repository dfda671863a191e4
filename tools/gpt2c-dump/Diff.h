// What two plans have different.
#pragma once

#include "ir/Function.h"
#include "tools/gpt2c-dump/Dump.h"

namespace gpt2c {

struct DiffSide {
  const rt::Plan &plan;
  const Module &module; ///< the plan's own, loadPlanModule()
};

/// Prints what differs, nothing of what is alike; false, with a line that says so, where nothing
/// does. Weights are compared by their names in the IR; of those with other bytes the error is |a -
/// b| / |a| over all elements (Euclidean norms), int8 ones times their scales.
bool dumpDiff(const DiffSide &a, const DiffSide &b, llvm::raw_ostream &os);

} // namespace gpt2c

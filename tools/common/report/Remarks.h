// How tools show what the passes remarked.
#pragma once

#include "passes/Remark.h"
#include "plan_generated.h"

namespace gpt2c {

/// `missed: recognise-gelu: message [/h.0/mlp/Mul, /h.0/mlp/Pow and 5 more]; it costs 7 launches
/// and 1.2 MiB a step`, and `remark:` for a decision. Unless `all`, remarks that differ only in
/// their places become one line.
void printRemarks(llvm::ArrayRef<Remark> remarks, const StepSizes &sizes, bool all,
                  llvm::raw_ostream &os);
/// As JSON; docs/passes.md has the schema.
void writeRemarks(llvm::ArrayRef<Remark> remarks, const StepSizes &sizes, llvm::raw_ostream &os);
/// As a plan keeps it.
plan::RemarkT storedRemark(const Remark &remark, const StepSizes &sizes);

} // namespace gpt2c

// What groups of weights that share a scale cost a plan's decode steps.
#pragma once

#include "codegen/Codegen.h"

namespace gpt2c {

/// Why a decode step of weights of a byte in groups of `group` elements takes longer than one with
/// a scale for each row, by more than an eighth of the estimates: in words that follow "since".
/// Empty: it does not. `module` is in front of the stage `quantised`, `precision` what the plan
/// computes in.
std::string whyGroupsAreSlower(const Module &module, DType precision, int64_t group,
                               const CodegenOptions &options);

} // namespace gpt2c

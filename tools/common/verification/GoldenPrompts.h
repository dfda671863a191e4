// The golden prompts of a plan, for runtime/session/SelfTest.h: made from what the reference
// executor computes of the plan's own functions.
#pragma once

#include "plan_generated.h"
#include "verify/PlanRunner.h"

namespace gpt2c {

/// Prompts of 1, 33 and 7 random tokens, or fewer where the context ends, with 1, 1 and 5 greedy
/// tokens behind them; of a plan without a KV state prompts alone, of at most `most` tokens where
/// the graph does not say how many it takes. `runner` runs the functions of `module` over calls of
/// `graph`. An error says what the plan cannot be asked.
llvm::Expected<std::unique_ptr<plan::GoldenT>> makeGolden(const ExportedGraph &graph,
                                                          const Module &module, PlanRunner &runner,
                                                          int64_t most, double tolerance);

} // namespace gpt2c

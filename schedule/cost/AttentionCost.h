// Estimated times of attention over the KV state: for whole functions, and to compare steps in
// which it is computed alike. Constants are those of an H200.
#pragma once

#include "schedule/attention/PagedProblem.h"
#include "schedule/cost/TargetRates.h"

namespace gpt2c {

/// Microseconds of a launch at the most sequences and queries: one or few queries a sequence attend
/// to usualKeys keys (StepCost.h), prompts to their own.
double attentionMicroseconds(const AttentionProblem &problem, const TargetRates &rates);
/// The same over pages: pieces of one row each, or of prompts.
double attentionMicroseconds(const PagedProblem &problem, const TargetRates &rates);

} // namespace gpt2c

// What a graph in half precision decides by lengths and positions, and would decide otherwise if
// nothing was rounded. Plans compute it as the graph says (ir/Decisions.h), and so does not every
// runtime: where half precision is computed in single precision, the other result comes out.
#pragma once

#include "ir/Function.h"

#include <vector>

namespace gpt2c {

struct RoundedDecision {
  const Op *op = nullptr;
  std::string where = {};      ///< "at [0, 5] of 24 tokens"
  double given = 0, exact = 0; ///< what it gives, and what it would give without rounding
};

/// Each such op of `f`. Looked at is every element at the full context, up to 2^20 of them, else
/// those of the first and the last query and key; and the corners at each shorter length, without
/// and behind a past. `maxContext` is that of the plan, or 0.
std::vector<RoundedDecision> roundedDecisions(Function &f, int64_t maxContext);

} // namespace gpt2c

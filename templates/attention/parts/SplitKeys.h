// What configurations of attention have where blocks share the keys of a query.
#pragma once

#include "schedule/attention/AttentionProblem.h"

namespace gpt2c {

struct SplitKeysConfig : AttentionConfig {
  int warps = 4;
  int splits = 1;       ///< blocks that share keys
  bool cluster = false; ///< they are a thread block cluster, at most 8
};

} // namespace gpt2c

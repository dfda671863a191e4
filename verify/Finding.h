// What the comparison of a plan with the exported graph finds.
#pragma once

#include "verify/CheckPlan.h"

namespace gpt2c {

/// What differs, and where.
struct Finding {
  std::string text;
  bool lost = false;  ///< numbers are finite on one side alone
  double largest = 0; ///< magnitude of what the exported graph computes there
};

/// What a finding means, and what may help. `rounding`: the same functions are right in double.
llvm::Error explained(const Finding &finding, const CheckOptions &options, bool rounding);

} // namespace gpt2c

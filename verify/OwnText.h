// Texts that a model itself makes.
#pragma once

#include "verify/PlanRunner.h"

namespace gpt2c {

/// Beginnings of texts, drawn by the model's own probabilities behind one random token each, from a
/// plan's @prefill and @decode. What int8 makes of a trained model shows on tokens such as it
/// meets; behind random ones no model knows what comes. An error where the plan does not run, or
/// has logits that are not finite.
llvm::Expected<std::vector<TokenIds>> ownTexts(PlanRunner &plan, int64_t vocabulary,
                                               int64_t sequences, int64_t tokens);

} // namespace gpt2c

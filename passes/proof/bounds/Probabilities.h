// Probabilities that an exported graph gives in the place of its logits.
#pragma once

#include "ir/Function.h"

#include <optional>

namespace gpt2c {

/// v = softmax(logits) over the last axis, or its logarithm.
struct Probabilities {
  Value *logits = nullptr;
  bool logarithms = false;
  const Op *softmax = nullptr; ///< null where it is spelled out
};

/// By the op, or as exp(x) / sum(exp(x)) with the sum over the last axis. None where `v` is
/// neither.
std::optional<Probabilities> probabilitiesOf(Value *v);

} // namespace gpt2c

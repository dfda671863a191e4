// Vectors of texts, by a plan that gives the hidden states of each token.
#pragma once

#include "runtime/session/Session.h"

#include <optional>

namespace gpt2c::rt {

enum class Pooling {
  Last, ///< the last token's
  Mean, ///< of all tokens
};

/// Which output of the plan's @forward has a hidden state of each token: the one called
/// last_hidden_state, or the only one that is f[batch, tokens, width] and no logits.
std::optional<size_t> hiddenOutput(Session &session);

/// The vector of a text, of as many numbers as a hidden state has; of length 1 where it is to be
/// normalised (zeros stay zeros). Errors: Unsupported where the plan has no such output, and those
/// of Session::results.
Result<std::vector<float>> embed(Session &session, const Tokens &tokens, Pooling pooling,
                                 bool normalised);

} // namespace gpt2c::rt

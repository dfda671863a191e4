// Checks of logits that were computed.
#pragma once

#include "runtime/Status.h"

#include <cstdint>
#include <span>

namespace gpt2c::rt {

/// Quality where logits of one row are NaN: a greedy choice would be made among the others, or be
/// token 0. They are those behind `tokens` tokens of sequence `sequence` (from 0).
Status checkLogits(std::span<const float> row, int64_t sequence, int64_t tokens);

} // namespace gpt2c::rt

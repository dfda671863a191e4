#include "runtime/sampling/Logits.h"

#include <algorithm>
#include <cmath>

namespace gpt2c::rt {

Status checkLogits(std::span<const float> row, int64_t sequence, int64_t tokens) {
  const auto count = std::ranges::count_if(row, [](float v) { return std::isnan(v); });
  if (count == 0)
    return {};
  return Status(
      Code::Quality,
      "logits are NaN: " + std::to_string(count) + " of the " + std::to_string(row.size()) +
          " behind token " + std::to_string(tokens) + " of sequence " +
          std::to_string(sequence + 1) +
          ". An overflow, in fp16 most likely: compile with --precision=fp32; the remarks "
          "of gpt2c name weights that are not finite");
}

} // namespace gpt2c::rt

// What each of several ranks has of a weight (plan.fbs, WeightPart).
#pragma once

#include "plan_generated.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace gpt2c::rt {

/// How many ranks run a function together; 1: it is for one alone.
inline int ranksOf(const plan::FunctionT &function) {
  return function.ranks < 2 ? 1 : function.ranks;
}

/// The sizes of a part of [outer, axis, inner] elements.
struct WeightPartSizes {
  uint64_t outer = 0, axis = 0; ///< of the weight
  uint64_t unitBytes = 0;       ///< of a unit behind one of the outer
  uint64_t unitsOfRank = 0;
  uint64_t bytes() const { return outer * unitsOfRank * unitBytes; }
};

/// Nothing where the part is none of a weight of that type and shape: no such axis or unit, units
/// that are not as many for each rank, or elements that begin within a byte.
std::optional<WeightPartSizes> sizesOf(const plan::WeightPartT &part, plan::DType dtype,
                                       std::span<const int64_t> shape);

/// The part of rank `rank`, sizes.bytes() of them, of the weight's bytes.
void takePart(const plan::WeightPartT &part, const WeightPartSizes &sizes, int rank,
              std::span<const std::byte> weight, std::span<std::byte> to);

} // namespace gpt2c::rt

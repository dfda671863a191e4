#include "runtime/plan/WeightPart.h"

#include "runtime/plan/PlanFile.h"

#include <algorithm>
#include <cstring>

namespace gpt2c::rt {

std::optional<WeightPartSizes> sizesOf(const plan::WeightPartT &part, plan::DType dtype,
                                       std::span<const int64_t> shape) {
  if (part.axis < 0 || size_t(part.axis) >= shape.size() || part.ranks < 2 || part.units.empty() ||
      part.units.size() % size_t(part.ranks) != 0)
    return std::nullopt;
  WeightPartSizes s{.outer = 1, .axis = uint64_t(shape[part.axis])};
  uint64_t inner = 1;
  for (size_t i = 0; i < shape.size(); ++i)
    if (uint64_t &of = i < size_t(part.axis) ? s.outer : inner; i != size_t(part.axis))
      of *= uint64_t(shape[i]);
  if (part.unit < 1 || uint64_t(part.unit) > s.axis)
    return std::nullopt;
  const auto last = int64_t((s.axis - 1) / uint64_t(part.unit));
  if (std::ranges::any_of(part.units, [&](int64_t u) { return u < -1 || u > last; }))
    return std::nullopt;
  s.unitsOfRank = part.units.size() / size_t(part.ranks);
  if (s.unitsOfRank > uint64_t(last) + 1)
    return std::nullopt;
  // Of types smaller than a byte a unit is whole words, and the axis whole units.
  const auto unit = storedBytes(dtype, inner * uint64_t(part.unit));
  const uint64_t element = inner * dtypeBytes(dtype);
  if (!unit || *unit == 0 ||
      (element == 0 && (s.axis % uint64_t(part.unit) != 0 || inner * uint64_t(part.unit) % 8 != 0)))
    return std::nullopt;
  s.unitBytes = *unit;
  return s;
}

void takePart(const plan::WeightPartT &part, const WeightPartSizes &s, int rank,
              std::span<const std::byte> weight, std::span<std::byte> to) {
  const std::span units =
      std::span(part.units).subspan(size_t(rank) * s.unitsOfRank, s.unitsOfRank);
  const uint64_t row = weight.size() / std::max<uint64_t>(s.outer, 1);
  std::byte *at = to.data();
  for (uint64_t o = 0; o < s.outer; ++o)
    for (const int64_t u : units) {
      const uint64_t first = u < 0 ? row : uint64_t(u) * s.unitBytes;
      const uint64_t there = std::min(s.unitBytes, row - std::min(first, row));
      if (there)
        std::memcpy(at, weight.data() + o * row + first, there);
      std::memset(at + there, 0, s.unitBytes - there);
      at += s.unitBytes;
    }
}

} // namespace gpt2c::rt

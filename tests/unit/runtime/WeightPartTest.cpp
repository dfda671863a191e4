#include "runtime/plan/WeightPart.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

namespace gpt2c::rt {
namespace {

plan::WeightPartT partOf(int axis, int64_t unit, std::vector<int64_t> units, int ranks) {
  plan::WeightPartT part;
  part.axis = axis;
  part.unit = unit;
  part.units = std::move(units);
  part.ranks = ranks;
  return part;
}

std::vector<std::byte> taken(const plan::WeightPartT &part, const WeightPartSizes &sizes, int rank,
                             const std::vector<std::byte> &weight) {
  std::vector<std::byte> out(sizes.bytes(), std::byte(0xee));
  takePart(part, sizes, rank, weight, out);
  return out;
}

/// Element by element.
TEST(WeightPart, HasItsUnits) {
  std::mt19937 random(5);
  auto below = [&](int64_t n) { return int64_t(random() % uint64_t(n)); };
  for (int i = 0; i < 300; ++i) {
    const std::vector<int64_t> shape = {1 + below(4), 1 + below(9), 1 + below(5)};
    const int axis = int(below(3)), ranks = 2 + int(below(3));
    const int64_t size = shape[size_t(axis)], unit = 1 + below(size),
                  all = (size + unit - 1) / unit, each = 1 + below(all);
    std::vector<int64_t> units(size_t(each * ranks));
    for (int64_t &u : units)
      u = below(all + 1) - 1;
    const plan::WeightPartT part = partOf(axis, unit, units, ranks);
    const auto sizes = sizesOf(part, plan::DType::F16, shape);
    ASSERT_TRUE(sizes);
    std::vector<std::byte> weight(size_t(2 * shape[0] * shape[1] * shape[2]));
    for (std::byte &b : weight)
      b = std::byte(1 + below(255));
    const int rank = int(below(ranks));
    const std::vector<std::byte> got = taken(part, *sizes, rank, weight);
    std::vector<int64_t> mine = shape;
    mine[size_t(axis)] = unit * each;
    ASSERT_EQ(got.size(), size_t(2 * mine[0] * mine[1] * mine[2]));
    for (int64_t at = 0; at < int64_t(got.size()) / 2; ++at) {
      int64_t index[] = {at / (mine[1] * mine[2]), at / mine[2] % mine[1], at % mine[2]};
      const int64_t u = units[size_t(rank * each + index[axis] / unit)];
      index[axis] = u * unit + index[axis] % unit;
      const bool zero = u < 0 || index[axis] >= size;
      const int64_t from = (index[0] * shape[1] + index[1]) * shape[2] + index[2];
      for (int b = 0; b < 2; ++b)
        ASSERT_EQ(got[size_t(2 * at + b)], zero ? std::byte(0) : weight[size_t(2 * from + b)]);
    }
  }
}

TEST(WeightPart, IsOfTheWeight) {
  const std::vector<int64_t> shape = {6, 8};
  auto is = [&](const plan::WeightPartT &part, plan::DType type = plan::DType::F32) {
    return sizesOf(part, type, shape).has_value();
  };
  EXPECT_TRUE(is(partOf(0, 3, {0, 1}, 2)));
  EXPECT_FALSE(is(partOf(2, 1, {0, 1}, 2))) << "no such axis";
  EXPECT_FALSE(is(partOf(-1, 1, {0, 1}, 2)));
  EXPECT_FALSE(is(partOf(0, 7, {0, 0}, 2))) << "a unit that is longer than the axis";
  EXPECT_FALSE(is(partOf(0, 0, {0, 1}, 2)));
  EXPECT_FALSE(is(partOf(0, 3, {0, 2}, 2))) << "no such unit";
  EXPECT_FALSE(is(partOf(0, 3, {0, -2}, 2)));
  EXPECT_FALSE(is(partOf(0, 3, {0, 1, 1}, 2))) << "not as many for each";
  EXPECT_FALSE(is(partOf(0, 3, {}, 2)));
  EXPECT_FALSE(is(partOf(0, 3, {0, 1, 1, 0, 1, 0}, 2))) << "more than there are";
  EXPECT_FALSE(is(partOf(0, 3, {0}, 1))) << "one rank has no part";
  EXPECT_TRUE(is(partOf(1, 8, {0, 0}, 2), plan::DType::I4));
  EXPECT_FALSE(is(partOf(1, 4, {0, 1}, 2), plan::DType::I4)) << "half of a word";
}

} // namespace
} // namespace gpt2c::rt

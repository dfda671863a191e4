// Layers dealt to stages: as evenly as can be, each stage with one at least.
#include "runtime/group/StageCuts.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace gpt2c::rt {
namespace {

int64_t mostOf(std::span<const int64_t> bytes, const std::vector<int64_t> &cuts) {
  int64_t most = 0;
  for (size_t s = 0; s <= cuts.size(); ++s) {
    const auto from = bytes.begin() + (s ? cuts[s - 1] : 0);
    const auto to = s < cuts.size() ? bytes.begin() + cuts[s] : bytes.end();
    EXPECT_LT(from, to) << "a stage without a layer";
    most = std::max(most, std::accumulate(from, to, int64_t(0)));
  }
  return most;
}

/// The least that the fullest stage can have, by all ways to cut.
int64_t leastMost(std::span<const int64_t> bytes, int64_t stages) {
  if (stages == 1)
    return std::accumulate(bytes.begin(), bytes.end(), int64_t(0));
  int64_t best = INT64_MAX, first = 0;
  for (size_t n = 1; n + size_t(stages) - 1 <= bytes.size(); ++n) {
    first += bytes[n - 1];
    best = std::min(best, std::max(first, leastMost(bytes.subspan(n), stages - 1)));
  }
  return best;
}

TEST(Stages, AreAsEvenAsCanBe) {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int64_t> bytes(1 + random() % 9);
    for (int64_t &b : bytes)
      b = int64_t(random() % (round % 2 ? 4 : 1000));
    const auto stages = int64_t(1 + random() % bytes.size());
    const std::vector<int64_t> cuts = dealLayers(bytes, stages);
    ASSERT_EQ(int64_t(cuts.size()), stages - 1);
    ASSERT_EQ(mostOf(bytes, cuts), leastMost(bytes, stages));
  }
}

TEST(Stages, TheVocabularyTakesThePlaceOfLayers) {
  const std::vector<int64_t> even = {10, 10, 10, 10}, last = {10, 10, 10, 40};
  EXPECT_EQ(dealLayers(even, 2), std::vector<int64_t>({2}));
  EXPECT_EQ(dealLayers(last, 2), std::vector<int64_t>({3}));
  EXPECT_EQ(dealLayers(last, 4), std::vector<int64_t>({1, 2, 3}));
}

} // namespace
} // namespace gpt2c::rt

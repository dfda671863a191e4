// Golden rows: what their error estimates, and what they find.
#include "runtime/plan/Golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace gpt2c::rt {
namespace {

constexpr size_t kVocab = 5000;

/// Logits as those of a trained model: an offset, and a spread.
std::vector<float> logits(uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(-30, 3);
  std::vector<float> out(kVocab);
  for (float &x : out)
    x = normal(random);
  out[17] = -10;
  return out;
}

/// `of` with noise that is `error` of its deviation.
std::vector<float> withNoise(std::vector<float> of, double error, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, float(3 * error));
  for (float &x : of)
    x += normal(random);
  return of;
}

TEST(Golden, KeepsTheBestTokensInOrder) {
  std::vector<float> x = logits();
  x[400] = x[300] = -12;
  const plan::GoldenRowT row = goldenRow(x);
  ASSERT_EQ(row.top_ids.size(), 4u);
  EXPECT_EQ(row.top_ids[0], 17);
  EXPECT_EQ(row.top_ids[1], 300) << "the lower id first of equals";
  EXPECT_EQ(row.top_ids[2], 400);
  EXPECT_NEAR(row.mean, -30, 0.2);
  EXPECT_NEAR(row.deviation, 3, 0.2);
  double sum = 0;
  for (float v : x)
    sum += std::exp(v + 10.0);
  EXPECT_NEAR(row.top_logprobs[0], -std::log(sum), 1e-5);
}

TEST(Golden, TheErrorIsThatOfTheRow) {
  const plan::GoldenRowT row = goldenRow(logits());
  EXPECT_EQ(compareGolden(row, logits(), 1e-3).problem, "");
  for (double error : {1e-3, 1e-2, 0.1}) {
    double sum = 0;
    for (uint64_t seed = 2; seed < 42; ++seed)
      sum += compareGolden(row, withNoise(logits(), error, seed), 1).error;
    EXPECT_NEAR(sum / 40 / error, 1, 0.1) << error;
  }
}

TEST(Golden, ASmallErrorPassesAndALargeOneDoesNot) {
  const plan::GoldenRowT row = goldenRow(logits());
  for (uint64_t seed = 2; seed < 42; ++seed) {
    EXPECT_EQ(compareGolden(row, withNoise(logits(), 0.02, seed), 0.05).problem, "");
    EXPECT_NE(compareGolden(row, withNoise(logits(), 0.12, seed), 0.05).problem, "");
  }
}

TEST(Golden, AShiftOfAllLogitsIsFound) {
  std::vector<float> shifted = logits();
  for (float &x : shifted)
    x += 2;
  EXPECT_NE(compareGolden(goldenRow(logits()), shifted, 0.05).problem.find("mean"),
            std::string::npos);
}

TEST(Golden, OneLostLogitIsFound) {
  for (float lost :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> x = logits();
    x[4000] = lost;
    EXPECT_EQ(compareGolden(goldenRow(logits()), x, 0.5).problem,
              "4999 logits are finite instead of 5000");
  }
}

TEST(Golden, LogitsOfMinusInfinityAreLeftOutOnBothSides) {
  std::vector<float> x = logits();
  x[4000] = -std::numeric_limits<float>::infinity();
  const plan::GoldenRowT row = goldenRow(x);
  EXPECT_TRUE(std::isfinite(row.mean) && std::isfinite(row.deviation));
  EXPECT_EQ(compareGolden(row, x, 1e-6).problem, "");
}

TEST(Golden, FewerLogitsAreFound) {
  std::vector<float> x = logits();
  const plan::GoldenRowT row = goldenRow(x);
  x.resize(kVocab - 1);
  EXPECT_NE(compareGolden(row, x, 0.5).problem, "");
  x.clear();
  EXPECT_NE(compareGolden(row, x, 0.5).problem, "");
}

TEST(Golden, ATokenMayFollowThatIsAsGoodWithinRounding) {
  std::vector<float> x = logits();
  x[300] = -10.01f;
  const plan::GoldenRowT row = goldenRow(x);
  EXPECT_TRUE(mayFollow(row, 17, 1e-4));
  EXPECT_TRUE(mayFollow(row, 300, 1e-3));
  EXPECT_FALSE(mayFollow(row, 300, 1e-4));
  EXPECT_FALSE(mayFollow(row, 5, 0.5));
}

} // namespace
} // namespace gpt2c::rt

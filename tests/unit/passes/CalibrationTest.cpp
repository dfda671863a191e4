// Observers of activations and the file they are kept in.
#include "passes/quantize/Calibration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

using namespace gpt2c;

namespace {

ActivationStats statsOf(const std::vector<float> &x, int64_t channels, bool firstOfWindow = false,
                        int64_t sampleEvery = 0) {
  ActivationStats s;
  s.channels = channels;
  s.add(x.data(), int64_t(x.size()) / channels, firstOfWindow, sampleEvery);
  return s;
}

std::vector<float> normal(size_t n, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float &v : x)
    v = normal(random);
  return x;
}

/// Mean squared error of x after static quantisation with the range r.
double errorOf(const std::vector<float> &x, double r) {
  double sum = 0, s = r / 127;
  for (float v : x)
    sum += std::pow(v - s * std::clamp(std::rint(v / s), -127.0, 127.0), 2);
  return sum / double(x.size());
}

TEST(Calibration, MinMaxIsTheLargestMagnitude) {
  ActivationStats s = statsOf({1, -7, 3, 2, 0, -1}, 3);
  EXPECT_EQ(s.range({Observer::MinMax}), 7);
  EXPECT_EQ(s.channelMax, (std::vector<float>{2, 7, 3}));
  EXPECT_EQ(s.channelSquares, (std::vector<double>{5, 49, 10}));
  EXPECT_EQ(s.rows, 2);
  EXPECT_EQ(statsOf({1, -7, 3, 2, 0, -1}, 3, true).channelSquares, (std::vector<double>{4, 0, 1}));
}

TEST(Calibration, PercentileLeavesOutTheTail) {
  std::vector<float> x = normal(100000);
  x[500] = 1000; // grows the histogram on the way
  ActivationStats s = statsOf(x, 10);
  EXPECT_EQ(s.range({Observer::MinMax}), 1000);
  EXPECT_EQ(s.range({Observer::Percentile, 100}), 1000);
  // A bin is a thousandth of the largest magnitude wide.
  EXPECT_NEAR(s.range({Observer::Percentile, 99}), 2.576, 1.1);
  ActivationStats narrow = statsOf(normal(100000), 10);
  EXPECT_NEAR(narrow.range({Observer::Percentile, 99}), 2.576, 0.05);
}

TEST(Calibration, MseIsNearTheBestRange) {
  for (float outlier : {0.0F, 20.0F, 200.0F}) {
    std::vector<float> x = normal(40000);
    x[7] = outlier;
    double chosen = statsOf(x, 4).range({Observer::Mse}), best = 1e300;
    for (double r = 0.5; r < 250; r *= 1.02)
      best = std::min(best, errorOf(x, r));
    EXPECT_LE(errorOf(x, chosen), 1.1 * best) << "outlier " << outlier << ", range " << chosen;
  }
}

TEST(Calibration, FirstTokensAreLeftOutOfTheHistogramAlone) {
  std::vector<float> x(64, 1.0F);
  x[0] = 500;
  ActivationStats s = statsOf(x, 4, true);
  EXPECT_EQ(s.range({Observer::MinMax}), 500);
  EXPECT_NEAR(s.range({Observer::Percentile, 100}), 1, 0.01);
  EXPECT_EQ(s.channelMax[0], 500);
}

TEST(Calibration, NothingButZeros) {
  ActivationStats s = statsOf(std::vector<float>(8), 4);
  for (auto kind : {Observer::MinMax, Observer::Percentile, Observer::Mse})
    EXPECT_EQ(s.range({kind}), 0);
}

TEST(Calibration, FilesRoundTrip) {
  Calibration c;
  c.tokens = 12;
  c.hash = "ab";
  std::vector<float> x = normal(64);
  c.layers["h.0/fc \"x\""] = statsOf(x, 8, true, 2);
  EXPECT_EQ(c.layers.begin()->second.sample.size(), 4u * 8);
  std::string text = c.toJson();
  auto back = Calibration::fromJson(text);
  ASSERT_TRUE(bool(back)) << llvm::toString(back.takeError());
  EXPECT_EQ(back->toJson(), text);
  EXPECT_EQ(back->find("h.0/fc \"x\"")->sample, c.layers.begin()->second.sample);
  EXPECT_EQ(back->find("h.1"), nullptr);
}

TEST(Calibration, DamagedFilesAreRefused) {
  Calibration c;
  c.layers["a"] = statsOf(normal(16), 4);
  std::string good = c.toJson();
  auto refused = [](std::string text, llvm::StringRef from, llvm::StringRef to) {
    size_t at = text.find(from.str());
    ASSERT_NE(at, std::string::npos) << from.str();
    text.replace(at, from.size(), to.str());
    auto read = Calibration::fromJson(text);
    ASSERT_FALSE(bool(read)) << from.str();
    std::string message = llvm::toString(read.takeError());
    EXPECT_NE(message.find("no calibration statistics"), std::string::npos) << message;
  };
  refused(good, "gpt2c calibration 1", "gpt2c calibration 2");
  refused(good, "\"channels\":4", "\"channels\":5");
  refused(good, "\"channels\":4", "\"channels\":0");
  refused(good, "\"histogram\":[", "\"histogram\":[-1,");
  refused(good, "\"channel_max\":\"", "\"channel_max\":\"!");
  refused(good, "\"channel_squares\":\"", "\"channel_squares\":\"AAAAAAAA");
  refused(good, "{", "[");
}

} // namespace

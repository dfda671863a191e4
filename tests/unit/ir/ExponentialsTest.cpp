// Exponentials against those of double precision.
#include "ir/ops/Exponentials.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace gpt2c {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Exponentials, AreThoseOfDoublePrecision) {
  std::mt19937 random(3);
  std::vector<float> x = {0, -0.F, 1, -1, 88.7F, -87.3F, -87.4F, -100, 1e-30F};
  for (int i = 0; i < 20000; ++i)
    x.push_back(std::uniform_real_distribution<float>(-103, 88.7F)(random));
  for (int level = 0; level <= int(machineLevel()); ++level) {
    std::vector<float> y = x;
    exponentials(y.data(), int64_t(y.size()), CpuLevel(level));
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp(double(x[i]));
      ASSERT_NEAR(y[i], exact, exact * 0x1p-22 + 0x1p-148) << x[i] << " at level " << level;
    }
  }
}

TEST(Exponentials, OfWhatIsNoNumberAndOfOneElement) {
  for (int level = 0; level <= int(machineLevel()); ++level) {
    std::vector<float> y = {-kInfinity, kInfinity, NAN, 1000, -1000};
    exponentials(y.data(), 5, CpuLevel(level));
    EXPECT_EQ(y[0], 0);
    EXPECT_EQ(y[1], kInfinity);
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_EQ(y[3], kInfinity);
    EXPECT_EQ(y[4], 0);
    std::vector<float> many(37, 0.7F);
    exponentials(many.data(), 37, CpuLevel(level));
    float one = 0.7F;
    exponentials(&one, 1, CpuLevel(level));
    for (float v : many)
      EXPECT_EQ(v, one);
  }
}

} // namespace
} // namespace gpt2c

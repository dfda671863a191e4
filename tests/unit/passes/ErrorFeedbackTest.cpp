// int4 with error feedback against rounding by itself, over inputs whose columns depend on each
// other.
#include "passes/quantize/ErrorFeedback.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

using namespace gpt2c;

namespace {

std::vector<float> drawn(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> v(n);
  for (float &x : v)
    x = distribution(random);
  return v;
}

/// Sums of x_i x_j over rows that mix fewer directions than there are columns.
std::vector<float> dependentProducts(int64_t k, int64_t directions) {
  const std::vector<float> mix = drawn(size_t(k * directions), 2), own = drawn(size_t(k), 3);
  std::vector<float> h(size_t(k * k));
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < k; ++j)
      for (int64_t d = 0; d < directions; ++d)
        h[i * k + j] += mix[i * directions + d] * mix[j * directions + d];
  for (int64_t i = 0; i < k; ++i)
    h[i * k + i] += 0.3F * own[i] * own[i];
  return h;
}

/// sum over rows of (w - s q) H (w - s q)^T
double productError(const Tensor &w, const QuantisedWeight &q, const std::vector<float> &h) {
  const int64_t n = w.dim(0), k = w.dim(1);
  const Tensor back = floatsOf(q, DType::F32);
  double sum = 0;
  for (int64_t row = 0; row < n; ++row)
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < k; ++j) {
        auto off = [&](int64_t c) {
          return double(w.data<float>()[row * k + c]) - back.data<float>()[row * k + c];
        };
        sum += off(i) * double(h[i * k + j]) * off(j);
      }
  return sum;
}

std::vector<float> diagonal(const std::vector<float> &h, int64_t k) {
  std::vector<float> d(static_cast<size_t>(k));
  for (int64_t i = 0; i < k; ++i)
    d[i] = h[i * k + i];
  return d;
}

TEST(ErrorFeedback, LaterColumnsMakeUpForEarlierOnes) {
  const int64_t n = 12, k = 160;
  const Tensor w = Tensor::of<float>(drawn(size_t(n * k), 1), {n, k});
  const std::vector<float> h = dependentProducts(k, 40);
  for (int64_t group : {32, 160}) {
    const auto fed = quantiseWithFeedback(w, group, h);
    ASSERT_TRUE(fed);
    EXPECT_EQ(fed->q.dtype(), DType::I4);
    EXPECT_EQ(fed->scale.dim(1), k / group);
    const QuantisedWeight alone = quantiseWeight(w, group, diagonal(h, k), DType::I4);
    EXPECT_EQ(fed->scale.byteArray(), alone.scale.byteArray());
    EXPECT_LT(productError(w, *fed, h), 0.4 * productError(w, alone, h)) << group;
  }
}

TEST(ErrorFeedback, ColumnsThatDoNotDependOnEachOtherAreRoundedAlone) {
  const int64_t n = 3, k = 64;
  const Tensor w = Tensor::of<float>(drawn(size_t(n * k), 4), {n, k});
  std::vector<float> h(size_t(k * k));
  for (int64_t i = 0; i < k; ++i)
    h[i * k + i] = 1 + float(i % 7);
  const auto fed = quantiseWithFeedback(w, 16, h);
  ASSERT_TRUE(fed);
  const QuantisedWeight alone = quantiseWeight(w, 16, diagonal(h, k), DType::I4);
  // A division of their own may take a tie to either side.
  for (int64_t i = 0; i < n * k; ++i)
    EXPECT_LE(std::abs(fed->q.asInt(i) - alone.q.asInt(i)), 1);
  EXPECT_LE(productError(w, *fed, h), 1.0001 * productError(w, alone, h));
}

TEST(ErrorFeedback, NothingWasSeenOrWhatIsNoSumOfProducts) {
  const Tensor w = Tensor::of<float>(drawn(16, 5), {1, 16});
  std::vector<float> h(256);
  EXPECT_FALSE(quantiseWithFeedback(w, 16, h));
  for (int i = 0; i < 16; ++i)
    h[i * 16 + i] = 1;
  h[1] = h[16] = 3;
  EXPECT_FALSE(quantiseWithFeedback(w, 16, h));
}

} // namespace

// Scales of int8 weights by least weighted squared error.
#include "passes/quantize/WeightScales.h"

#include "ir/ops/Quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

using namespace gpt2c;

namespace {

Tensor randomWeight(int64_t n, int64_t k, std::mt19937 &random) {
  Tensor w(DType::F32, {n, k});
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < n * k; ++i)
    w.data<float>()[i] = normal(random);
  return w;
}

/// sum_k m_k (w_k - q_k s)^2 of each row.
std::vector<double> errors(const Tensor &w, const QuantisedWeight &q, const std::vector<float> &m) {
  int64_t n = w.dim(0), k = w.dim(1), groups = q.scale.dim(1);
  std::vector<double> out(n);
  for (int64_t i = 0; i < n * k; ++i) {
    double s = q.scale.data<float>()[i / (k / groups)];
    double e = w.data<float>()[i] - q.q.data<int8_t>()[i] * s;
    out[i / k] += m[i % k] * e * e;
  }
  return out;
}

QuantisedWeight byLargest(const Tensor &w, int64_t group) {
  int64_t n = w.dim(0), k = w.dim(1);
  QuantisedWeight out{
      Tensor(DType::I8, w.shape()), Tensor(DType::F32, {n, group ? k / group : 1}), {}};
  quantiseRows(w.data<float>(), n, k, group, out.q.data<int8_t>(), out.scale.data<float>());
  return out;
}

TEST(WeightScales, NeverWorseThanTheLargestMagnitude) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> moment(0, 4);
  double sum = 0, sumByLargest = 0;
  for (int round = 0; round < 50; ++round) {
    int64_t k = 8 * (1 + round), group = round % 3 ? 0 : k / 4;
    Tensor w = randomWeight(5, k, random);
    std::vector<float> m(k);
    for (float &v : m)
      v = moment(random);
    std::vector<double> best = errors(w, quantiseWeight(w, group, m), m),
                        plain = errors(w, byLargest(w, group), m);
    for (size_t i = 0; i < best.size(); ++i) {
      EXPECT_LE(best[i], plain[i] * (1 + 1e-5)) << "k " << k << " group " << group;
      sum += best[i];
      sumByLargest += plain[i];
    }
  }
  EXPECT_LT(sum, 0.98 * sumByLargest);
}

TEST(WeightScales, ErrorIsThatOfTheLargestMagnitude) {
  std::mt19937 random(2);
  Tensor w = randomWeight(7, 48, random);
  std::vector<float> m(48);
  for (size_t i = 0; i < m.size(); ++i)
    m[i] = float(i % 5);
  for (int64_t group : {0, 12}) {
    double sum = 0;
    for (double e : errors(w, byLargest(w, group), m))
      sum += e;
    EXPECT_NEAR(weightError(w, group, m), sum, 1e-4 * sum);
  }
}

TEST(WeightScales, ColumnsThatMeetNothingMayBeClipped) {
  Tensor w = Tensor::of<float>({10.0F, 0.513F, -0.927F, 0.338F}, {1, 4});
  std::vector<float> all(4, 1), tail{0, 1, 1, 1};
  EXPECT_FLOAT_EQ(quantiseWeight(w, 0, all).scale.data<float>()[0], 10.0F / 127);
  QuantisedWeight clipped = quantiseWeight(w, 0, tail);
  EXPECT_LT(clipped.scale.data<float>()[0], 10.0F / 127);
  EXPECT_EQ(clipped.q.data<int8_t>()[0], 127);
}

TEST(WeightScales, ExactWeightsAndZerosStay) {
  Tensor w = Tensor::of<float>({0, 0, 254, -2}, {2, 2});
  QuantisedWeight q = quantiseWeight(w, 0, {});
  EXPECT_EQ(q.scale.data<float>()[0], 1);
  EXPECT_EQ(q.scale.data<float>()[1], 2);
  EXPECT_EQ(q.q.data<int8_t>()[2], 127);
  EXPECT_EQ(q.q.data<int8_t>()[3], -1);
}

TEST(WeightScales, Int4IsSearchedForEachGroup) {
  std::mt19937 random(5);
  const Tensor w = randomWeight(7, 256, random);
  std::vector<float> moments(256);
  for (float &m : moments)
    m = std::uniform_real_distribution<float>(0, 2)(random);
  for (int64_t group : {16, 64, 256}) {
    const QuantisedWeight q = quantiseWeight(w, group, moments, DType::I4);
    ASSERT_EQ(q.scale.dim(1), 256 / group);
    EXPECT_EQ(int64_t(q.q.bytes()), 7 * 128);
    double sum = 0;
    const Tensor back = floatsOf(q, DType::F32);
    for (int64_t i = 0; i < w.count(); ++i)
      sum += moments[i % 256] * std::pow(double(back.data<float>()[i]) - w.data<float>()[i], 2);
    // Plain rounding, by 15 of the 16 numbers, and by all of them.
    double plain = 0;
    for (int64_t at = 0; at < w.count(); at += group) {
      float largest = 0;
      for (int64_t i = at; i < at + group; ++i)
        largest = std::max(largest, std::fabs(w.data<float>()[i]));
      for (int64_t i = at; i < at + group; ++i) {
        const float v = w.data<float>()[i], s = largest / 7;
        plain += moments[i % 256] * std::pow(double(std::nearbyint(v / s)) * s - v, 2);
      }
    }
    EXPECT_LT(sum, 0.8 * plain) << group;
    EXPECT_LT(sum, 1.001 * weightError(w, group, moments, DType::I4)) << group;
  }
}

TEST(WeightScales, Int4HoldsItsNumbersAndZeros) {
  Tensor w = Tensor::zeros(DType::F32, {2, 16});
  for (int i = 0; i < 16; ++i)
    w.data<float>()[16 + i] = 0.25F * float(i - 8);
  const QuantisedWeight q = quantiseWeight(w, 0, {}, DType::I4);
  EXPECT_EQ(floatsOf(q, DType::F32).byteArray(), w.byteArray());
  EXPECT_EQ(q.scale.data<float>()[0], 1);
}

TEST(WeightScales, Int4OfOneSignHasAllOfItsNumbers) {
  Tensor w(DType::F32, {1, 16});
  for (int i = 0; i < 16; ++i)
    w.data<float>()[i] = 3.0F * float(i);
  const QuantisedWeight q = quantiseWeight(w, 0, {}, DType::I4);
  EXPECT_EQ(floatsOf(q, DType::F32).byteArray(), w.byteArray());
  EXPECT_EQ(q.zero.data<int8_t>()[0], -8);
  EXPECT_EQ(q.q.asInt(15), 7);
}

TEST(WeightScales, GroupsOfInt4DivideRows) {
  EXPECT_EQ(int4Group(768, 128), 128);
  EXPECT_EQ(int4Group(1600, 128), 64);
  EXPECT_EQ(int4Group(80, 128), 16);
  EXPECT_EQ(int4Group(40, 128), 0);
  EXPECT_EQ(int4Group(768, 16), 16);
}

TEST(WeightScales, Fp8IsWithinAStepAndLeavesRoomForGains) {
  std::mt19937 random(3);
  Tensor w = randomWeight(9, 200, random);
  std::fill_n(w.data<float>() + 200, 200, 0.0F);
  const QuantisedWeight q = quantiseWeight(w, 0, {}, DType::F8E4M3);
  for (int64_t i = 0; i < w.count(); ++i) {
    const float scale = q.scale.data<float>()[i / 200], step = q.q.data<Fp8>()[i],
                v = w.data<float>()[i];
    EXPECT_LE(std::fabs(step), 112);
    EXPECT_LE(std::fabs(step * scale - v), std::max(std::fabs(v) / 15.99F, scale * 0x1.01p-10F));
  }
  EXPECT_EQ(q.scale.data<float>()[1], 1);
}

TEST(WeightScales, BlocksOfFp8ShareAScale) {
  std::mt19937 random(5);
  for (auto [n, k, columns] : {std::tuple(5, 24, 8), {9, 28, 8}, {4, 6, 8}, {3, 8, 8}}) {
    constexpr int64_t rows = 4;
    const Tensor w = randomWeight(n, k, random);
    std::vector<float> moments(k);
    for (float &m : moments)
      m = std::uniform_real_distribution<float>(0, 2)(random);
    const QuantisedWeight q = quantiseWeightByBlock(w, rows, columns, moments);
    const int64_t groups = q.scale.dim(1), group = k / groups;
    ASSERT_EQ(columns % group, 0);
    auto scaleOf = [&](int64_t i, int64_t j) {
      return q.scale.data<float>()[i * groups + j / group];
    };
    auto errorOf = [&](int64_t row, int64_t column, float scale) {
      double sum = 0;
      for (int64_t i = row; i < std::min<int64_t>(n, row + rows); ++i)
        for (int64_t j = column; j < std::min<int64_t>(k, column + columns); ++j) {
          const float v = w.data<float>()[i * k + j];
          sum += moments[j] * std::pow(fp8ToFloat(floatToFp8(v / scale)) * scale - v, 2);
        }
      return sum;
    };
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < k; ++j) {
        const int64_t row = i / rows * rows, column = j / columns * columns;
        EXPECT_EQ(scaleOf(i, j), scaleOf(row, column));
        const float scale = scaleOf(i, j), v = w.data<float>()[i * k + j];
        EXPECT_EQ(q.q.data<Fp8>()[i * k + j].bits, floatToFp8(v * (1.0F / scale)));
        float largest = 0;
        for (int64_t a = row; a < std::min<int64_t>(n, row + rows); ++a)
          for (int64_t b = column; b < std::min<int64_t>(k, column + columns); ++b)
            largest = std::max(largest, std::fabs(w.data<float>()[a * k + b]));
        EXPECT_LE(errorOf(row, column, scale), 1.001 * errorOf(row, column, largest / 112));
      }
    EXPECT_EQ(floatsOf(q, DType::F32).data<float>()[n * k - 1],
              float(q.q.data<Fp8>()[n * k - 1]) * scaleOf(n - 1, k - 1));
  }
}

} // namespace

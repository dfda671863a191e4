// Products of many rows with weights as they are stored, and those by tiles.
#include "ir/ops/TileProduct.h"

#include "ir/ops/IntegerProduct.h"
#include "ir/ops/StoredProduct.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

namespace gpt2c {
namespace {

// Tails of tiles of rows and of columns.
constexpr std::array<int64_t, 3> kTileSizes[] = {
    {9, 16, 64}, {16, 33, 128}, {33, 48, 192}, {70, 100, 576}, {130, 257, 320}};

class TileProduct : public testing::Test {
protected:
  void SetUp() override {
    if (machineLevel() < CpuLevel::Amx)
      GTEST_SKIP() << "the processor has no tiles (AMX)";
  }
  std::mt19937 random{3};
  std::vector<float> waves(int64_t count) {
    std::vector<float> v(count);
    for (float &x : v)
      x = std::normal_distribution<float>()(random);
    return v;
  }
};

TEST_F(TileProduct, SumsOfBytesAreExactAndScaledAsElsewhere) {
  std::uniform_int_distribution<int> any(-128, 127);
  for (auto [m, n, k] : kTileSizes)
    for (bool grouped : {false, true}) {
      std::vector<int8_t> a(m * k), b(n * k);
      for (auto *v : {&a, &b})
        for (int8_t &x : *v)
          x = int8_t(any(random));
      const int64_t group = grouped ? 64 : k, groups = k / group;
      const std::vector<float> rows = waves(m * groups), columns = waves(n * groups);
      std::vector<int32_t> offset(n);
      for (int32_t &x : offset)
        x = any(random);
      ASSERT_TRUE(tilesFit<int8_t>(m, n, k, group));
      const int64_t whole = n / tileColumns * tileColumns;
      std::vector<float> c(m * n, 0.5f), want(m * n, 0.5f);
      const TileRows<int8_t> left(Matrix<const int8_t>{a.data(), k}, m, k);
      for (int64_t g = 0; g < groups; ++g) {
        tileProduct(left, {b.data(), k, true},
                    {rows.data() + g, groups, columns.data() + g, groups, offset.data()},
                    {c.data(), n}, n, g * group, group);
        std::vector<int32_t> sums(m * n);
        integerProduct({a.data() + g * group, k}, {b.data() + g * group, k, true}, {sums.data(), n},
                       m, n, group, CpuLevel::Portable);
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < whole; ++j) {
            volatile float part = float(sums[i * n + j] + offset[j]) * rows[i * groups + g];
            part = part * columns[j * groups + g];
            want[i * n + j] += part;
          }
      }
      EXPECT_EQ(c, want) << m << " x " << n << " x " << k << " in " << groups << " groups";
    }
}

/// A product with W, stored, against one in double precision.
template <typename W> void expectProduct(std::mt19937 &random, bool exactLeft) {
  auto narrow = [](float x) {
    if constexpr (std::is_same_v<W, Half>)
      return Half{floatToHalf(x)};
    else
      return BFloat{floatToBfloat(x)};
  };
  std::normal_distribution<float> wave;
  for (auto [m, n, k] : kTileSizes) {
    std::vector<float> a(m * k), c(m * n, NAN);
    std::vector<W> b(n * k);
    for (float &x : a)
      x = exactLeft ? float(narrow(wave(random))) : wave(random);
    for (W &x : b)
      x = narrow(wave(random));
    const Matrix<const float> left{a.data(), k};
    const Matrix<const W> right{b.data(), k, true};
    if constexpr (std::is_same_v<W, BFloat>)
      exactLeft ? bfloatProduct(left, right, {c.data(), n}, m, n, k)
                : storedProduct(left, right, {c.data(), n}, m, n, k);
    else
      storedProduct(left, right, {c.data(), n}, m, n, k);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, size = 0;
        for (int64_t l = 0; l < k; ++l) {
          const double term = double(a[i * k + l]) * double(float(b[j * k + l]));
          sum += term;
          size += std::abs(term);
        }
        ASSERT_NEAR(c[i * n + j], sum, size * 1e-6)
            << m << " x " << n << " x " << k << " at " << i << ", " << j;
      }
  }
}

TEST(StoredProduct, WidensHalvesAndMultipliesBfloatsByTiles) {
  std::mt19937 random(5);
  expectProduct<Half>(random, false);
  expectProduct<BFloat>(random, false);
  expectProduct<BFloat>(random, true);
}

TEST(StoredProduct, BytesOfManyRowsAreThoseOfFew) {
  std::mt19937 random(7);
  std::normal_distribution<float> wave;
  const int64_t m = 70, n = 50, k = 96, group = 32;
  std::vector<float> a(m * k), scales(n * k / group), c(m * n, NAN), rows(m * n, NAN);
  std::vector<int8_t> b(n * k);
  for (auto *v : {&a, &scales})
    for (float &x : *v)
      x = wave(random);
  for (int8_t &x : b)
    x = int8_t(random());
  const RowScales of{scales.data(), k / group, group};
  storedProduct<int8_t>({a.data(), k}, {b.data(), k, true}, of, {c.data(), n}, m, n, k);
  rowProduct<float, int8_t>({a.data(), k}, {b.data(), k, true}, of, {rows.data(), n}, m, n, k);
  for (int64_t i = 0; i < m * n; ++i)
    ASSERT_NEAR(c[i], rows[i], 2e-2) << i; // of sums of some 1000
}

TEST(RowProductOfHalves, HasTheBitsOfWidenedOnesAtEveryLevel) {
  std::mt19937 random(9);
  std::normal_distribution<float> wave;
  for (auto [m, n, k] : {std::array<int64_t, 3>{1, 7, 5}, {3, 50, 100}, {13, 9, 1100}}) {
    std::vector<float> a(m * k), wideHalf(n * k), wideBfloat(n * k);
    std::vector<Half> half(n * k);
    std::vector<BFloat> bfloat(n * k);
    for (float &x : a)
      x = wave(random);
    for (int64_t i = 0; i < n * k; ++i) {
      const float x = wave(random);
      half[i] = {floatToHalf(x)}, bfloat[i] = {floatToBfloat(x)};
      wideHalf[i] = half[i], wideBfloat[i] = bfloat[i];
    }
    for (int level = 0; level <= int(machineLevel()); ++level) {
      auto product = [&](auto &b) {
        std::vector<float> c(m * n, NAN);
        using W = typename std::decay_t<decltype(b)>::value_type;
        const Matrix<const W> right{b.data(), k, true};
        if constexpr (std::is_same_v<W, float>)
          rowProduct<float>({a.data(), k}, right, {c.data(), n}, m, n, k, false, CpuLevel(level));
        else
          rowProduct<W>({a.data(), k}, right, {c.data(), n}, m, n, k, CpuLevel(level));
        return c;
      };
      EXPECT_EQ(product(half), product(wideHalf)) << "level " << level;
      EXPECT_EQ(product(bfloat), product(wideBfloat)) << "level " << level;
    }
  }
}

} // namespace
} // namespace gpt2c

// Products whose rows do not depend on each other: their values, and their bits.
#include "ir/ops/RowProduct.h"

#include "ir/ops/BlasThreads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace gpt2c {
namespace {

// Tails of lanes, of tiles and of parts of K.
struct Sizes {
  int64_t m, n, k;
};
constexpr Sizes kSizes[] = {{1, 1, 1},   {1, 9, 7},      {2, 5, 1030},  {3, 64, 8},
                            {7, 67, 33}, {13, 131, 100}, {5, 70, 2049}, {40, 300, 1024}};

template <typename T> class RowProduct : public testing::Test {
public:
  using Element = T;
  std::mt19937 random{1};
  std::vector<T> a, b;
  CpuLevel level = machineLevel();

  std::vector<T> waves(int64_t count) {
    std::vector<T> v(count);
    for (T &x : v)
      x = T(std::normal_distribution<double>()(random));
    return v;
  }
  void make(Sizes s) {
    a = waves(s.m * s.k);
    b = waves(s.n * s.k);
  }
  Matrix<const T> rightOf(Sizes s, bool transposed) const {
    return {b.data(), transposed ? s.k : s.n, transposed};
  }
  std::vector<T> product(Sizes s, bool transposed, const std::vector<T> &before = {}) const {
    std::vector<T> c = before.empty() ? std::vector<T>(s.m * s.n, T(NAN)) : before;
    rowProduct<T>({a.data(), s.k}, rightOf(s, transposed), {c.data(), s.n}, s.m, s.n, s.k,
                  !before.empty(), level);
    return c;
  }
  static bool sameBits(const T *x, const T *y, int64_t count) {
    return std::memcmp(x, y, count * sizeof(T)) == 0;
  }
};

using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(RowProduct, Types);

TYPED_TEST(RowProduct, IsTheProduct) {
  using T = TypeParam;
  for (auto [m, n, k] : kSizes)
    for (bool transposed : {true, false})
      for (bool accumulate : {false, true}) {
        this->make({m, n, k});
        const std::vector<T> before = accumulate ? this->waves(m * n) : std::vector<T>();
        const std::vector<T> c = this->product({m, n, k}, transposed, before);
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            double sum = accumulate ? double(before[i * n + j]) : 0, size = std::abs(sum);
            for (int64_t l = 0; l < k; ++l) {
              const double term =
                  double(this->a[i * k + l]) * double(this->b[transposed ? j * k + l : l * n + j]);
              sum += term;
              size += std::abs(term);
            }
            ASSERT_NEAR(c[i * n + j], sum, size * 4 * std::numeric_limits<T>::epsilon() * 8)
                << m << " x " << n << " x " << k << " at " << i << ", " << j;
          }
      }
}

TYPED_TEST(RowProduct, ARowHasTheSameBitsAloneAndAmongOthers) {
  using T = TypeParam;
  for (auto [m, n, k] : kSizes)
    for (bool transposed : {true, false}) {
      this->make({m, n, k});
      const std::vector<T> all = this->product({m, n, k}, transposed), a = this->a;
      for (int64_t first = 0; first < m; ++first)
        for (int64_t count : {int64_t(1), int64_t(2), m - first}) {
          if (first + count > m)
            continue;
          this->a.assign(a.begin() + first * k, a.begin() + (first + count) * k);
          const std::vector<T> some = this->product({count, n, k}, transposed);
          ASSERT_TRUE(this->sameBits(some.data(), all.data() + first * n, count * n))
              << count << " of " << m << " x " << n << " x " << k;
        }
    }
}

/// The formula of RowProduct.h, one element after the other.
template <typename T>
T formula(const T *a, const T *b, int64_t step, int64_t k, bool transposed, const T *before) {
  constexpr int64_t lanes = 64 / sizeof(T), part = 1024;
  T sum = before ? *before : T(0);
  if (!transposed) {
    for (int64_t i = 0; i < k; ++i)
      sum = std::fma(a[i], b[i * step], sum);
    return sum;
  }
  for (int64_t from = 0; from < k; from += part) {
    T lane[lanes] = {};
    for (int64_t i = 0; i < std::min(part, k - from); ++i)
      lane[i % lanes] = std::fma(a[from + i], b[from + i], lane[i % lanes]);
    for (int64_t half = lanes / 2; half; half /= 2)
      for (int64_t l = 0; l < half; ++l)
        lane[l] += lane[l + half];
    sum = from || before ? sum + lane[0] : lane[0];
  }
  return sum;
}

TYPED_TEST(RowProduct, EveryLevelAndNumberOfThreadsHasTheBitsOfTheFormula) {
  using T = TypeParam;
  const int threads = productThreads();
  for (auto [m, n, k] : kSizes)
    for (bool transposed : {true, false})
      for (bool accumulate : {false, true}) {
        this->make({m, n, k});
        const std::vector<T> before = accumulate ? this->waves(m * n) : std::vector<T>();
        std::vector<T> expected(m * n);
        for (int64_t i = 0; i < m * n; ++i)
          expected[i] =
              formula(this->a.data() + i / n * k, this->b.data() + i % n * (transposed ? k : 1), n,
                      k, transposed, accumulate ? &before[i] : nullptr);
        for (int level = 0; level <= int(machineLevel()); ++level) {
          this->level = CpuLevel(level);
          ASSERT_TRUE(setProductThreads(1 + level));
          const std::vector<T> c = this->product({m, n, k}, transposed, before);
          ASSERT_TRUE(this->sameBits(c.data(), expected.data(), m * n))
              << m << " x " << n << " x " << k << " at level " << level;
        }
      }
  ASSERT_TRUE(setProductThreads(threads));
}

/// Rows alone and among others, scales of groups that lanes do not divide, each level: one sum.
/// `draw` makes a weight.
template <typename W, typename Test> void checkQuantised(Test *self, W (*draw)(std::mt19937 &)) {
  using T = typename Test::Element;
  for (auto [m, n, k, group] : {std::array<int64_t, 4>{1, 9, 14, 7},
                                {3, 50, 96, 32},
                                {8, 7, 2080, 2080},
                                {9, 49, 1040, 16},
                                {20, 3, 1500, 1500}}) {
    self->make({m, n, k});
    std::vector<W> w(n * k);
    for (W &x : w)
      x = draw(self->random);
    const int64_t groups = k / group;
    std::vector<float> scales(n * groups);
    for (float &s : scales)
      s = std::uniform_real_distribution<float>(0.001F, 0.01F)(self->random);
    auto product = [&](int64_t first, int64_t rows, CpuLevel level) {
      std::vector<T> c(rows * n, T(NAN));
      rowProduct<T, W>({self->a.data() + first * k, k}, {w.data(), k, true},
                       {scales.data(), groups, group}, {c.data(), n}, rows, n, k, level);
      return c;
    };
    const std::vector<T> c = product(0, m, CpuLevel::Portable);
    for (int64_t i = 0; i < m * n; ++i) {
      double sum = 0, size = 0;
      for (int64_t l = 0; l < k; ++l) {
        const double term = double(self->a[i / n * k + l]) * float(w[i % n * k + l]) *
                            double(scales[i % n * groups + l / group]);
        sum += term;
        size += std::abs(term);
      }
      ASSERT_NEAR(c[i], sum, size * 32 * std::numeric_limits<T>::epsilon()) << i << " of " << k;
    }
    for (int level = 1; level <= int(machineLevel()); ++level) {
      ASSERT_TRUE(self->sameBits(product(0, m, CpuLevel(level)).data(), c.data(), m * n))
          << k << " at level " << level;
      ASSERT_TRUE(
          self->sameBits(product(m - 1, 1, CpuLevel(level)).data(), c.data() + (m - 1) * n, n))
          << k << " at level " << level;
    }
  }
}

TYPED_TEST(RowProduct, WeightsInInt8) {
  checkQuantised<int8_t>(this, [](std::mt19937 &random) {
    return int8_t(std::uniform_int_distribution<int>(-128, 127)(random));
  });
}

TYPED_TEST(RowProduct, WeightsInFp8) {
  checkQuantised<Fp8>(this, [](std::mt19937 &random) {
    const int magnitude = std::uniform_int_distribution<int>(0, 126)(random);
    return Fp8{uint8_t(magnitude | (random() & 0x80))};
  });
}

// With and without zero points, groups of half a vector to more than a part of K.
TYPED_TEST(RowProduct, WeightsInInt4) {
  using T = TypeParam;
  for (auto [m, n, k, group] : {std::array<int64_t, 4>{1, 9, 16, 8},
                                {3, 50, 96, 32},
                                {8, 7, 2080, 2080},
                                {9, 49, 1040, 16},
                                {20, 3, 1504, 752}})
    for (bool withZeros : {false, true}) {
      this->make({m, n, k});
      const int64_t groups = k / group;
      std::vector<Int4x8> w(n * k / 8);
      for (Int4x8 &word : w)
        word.word = uint32_t(this->random());
      std::vector<float> scales(n * groups);
      std::vector<int8_t> zeros(n * groups);
      for (float &s : scales)
        s = std::uniform_real_distribution<float>(-0.1F, 0.1F)(this->random);
      for (int8_t &z : zeros)
        z = int8_t(std::uniform_int_distribution<int>(-8, 7)(this->random));
      auto product = [&](int64_t first, int64_t rows, CpuLevel level) {
        std::vector<T> c(rows * n, T(NAN));
        rowProduct<T, Int4x8>({this->a.data() + first * k, k}, {w.data(), k, true},
                              {scales.data(), groups, group, withZeros ? zeros.data() : nullptr},
                              {c.data(), n}, rows, n, k, level);
        return c;
      };
      const std::vector<T> c = product(0, m, CpuLevel::Portable);
      for (int64_t i = 0; i < m * n; ++i) {
        double sum = 0, size = 0;
        for (int64_t l = 0; l < k; ++l) {
          const int64_t of = i % n * groups + l / group, at = i % n * k + l;
          const double step = w[at / 8].get(int(at % 8)) - (withZeros ? zeros[of] : 0);
          const double term = double(this->a[i / n * k + l]) * step * double(scales[of]);
          sum += term;
          size += std::abs(term);
        }
        ASSERT_NEAR(c[i], sum, size * 32 * std::numeric_limits<T>::epsilon()) << i << " of " << k;
      }
      for (int level = 1; level <= int(machineLevel()); ++level) {
        ASSERT_TRUE(this->sameBits(product(0, m, CpuLevel(level)).data(), c.data(), m * n))
            << k << " at level " << level;
        ASSERT_TRUE(
            this->sameBits(product(m - 1, 1, CpuLevel(level)).data(), c.data() + (m - 1) * n, n))
            << k << " at level " << level;
      }
    }
}

// 0x7f and 0xff are NaN at each level.
TYPED_TEST(RowProduct, NotANumberInFp8) {
  using T = TypeParam;
  for (int level = 0; level <= int(machineLevel()); ++level)
    for (uint8_t bits : {uint8_t(0x7f), uint8_t(0xff)}) {
      const std::vector<T> a(16, T(1));
      std::vector<Fp8> w(16, Fp8{0x38});
      w[9] = {bits};
      const float scale = 1;
      T c = 0;
      rowProduct<T, Fp8>({a.data(), 16}, {w.data(), 16, true}, {&scale, 1, 16}, {&c, 1}, 1, 1, 16,
                         CpuLevel(level));
      EXPECT_TRUE(std::isnan(c)) << "at level " << level;
    }
}

// What attention hides has the weight 0.
TYPED_TEST(RowProduct, ZerosBehindARowChangeNothing) {
  using T = TypeParam;
  const int64_t n = 64, k = 37, more = 90;
  this->make({1, n, more});
  std::fill(this->a.begin() + k, this->a.end(), T(0));
  const std::vector<T> longer = this->product({1, n, more}, false);
  ASSERT_TRUE(this->sameBits(this->product({1, n, k}, false).data(), longer.data(), n));
}

TYPED_TEST(RowProduct, TheFormOfProductsIsThatOfTheScope) {
  using T = TypeParam;
  const int64_t m = 3, n = 96, k = 768;
  this->make({m, n, k});
  std::vector<T> c(m * n);
  {
    RowInvariance none(false);
    EXPECT_FALSE(RowInvariance::active());
    RowInvariance one(true), other(false);
    EXPECT_TRUE(RowInvariance::active());
    matrixProduct<T>({this->a.data(), k}, this->rightOf({m, n, k}, true), {c.data(), n}, m, n, k,
                     false);
  }
  EXPECT_FALSE(RowInvariance::active());
  EXPECT_TRUE(this->sameBits(c.data(), this->product({m, n, k}, true).data(), m * n));
}

} // namespace
} // namespace gpt2c

// Products whose rows do not depend on each other: their values, and their bits.
#include "ir/ops/RowProduct.h"

#include "ir/ops/BlasThreads.h"

#include <gtest/gtest.h>

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
protected:
  std::mt19937 random{1};
  std::vector<T> a, b;

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
                  !before.empty());
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

TYPED_TEST(RowProduct, VectorsAndThreadsHaveTheBitsOfTheFormula) {
  using T = TypeParam;
  const int threads = productThreads();
  for (auto [m, n, k] : kSizes)
    for (bool transposed : {true, false})
      for (bool accumulate : {false, true}) {
        this->make({m, n, k});
        std::vector<T> before = accumulate ? this->waves(m * n) : std::vector<T>();
        ASSERT_TRUE(setProductThreads(3));
        const std::vector<T> c = this->product({m, n, k}, transposed, before);
        ASSERT_TRUE(setProductThreads(threads));
        before.resize(m * n);
        portableRowProduct<T>({this->a.data(), k}, this->rightOf({m, n, k}, transposed),
                              {before.data(), n}, m, n, k, accumulate);
        ASSERT_TRUE(this->sameBits(c.data(), before.data(), m * n))
            << m << " x " << n << " x " << k;
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

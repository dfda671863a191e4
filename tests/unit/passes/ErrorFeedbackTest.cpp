// int4 with error feedback against rounding by itself, over inputs whose columns depend on each
// other.
#include "passes/quantize/ErrorFeedback.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
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

/// Rows that mix fewer directions than they have columns, and a row for each column alone.
std::vector<float> dependentRows(int64_t k, int64_t directions) {
  std::vector<float> rows = drawn(size_t(k * directions), 2);
  const std::vector<float> own = drawn(size_t(k), 3);
  rows.resize(size_t(k * (directions + k)));
  for (int64_t i = 0; i < k; ++i)
    rows[(directions + i) * k + i] = 0.55F * own[i];
  return rows;
}

/// The sums of x_i x_j over rows.
std::vector<float> productsOf(const std::vector<float> &rows, int64_t k) {
  std::vector<float> h(size_t(k * k));
  for (size_t row = 0; row < rows.size(); row += k)
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < k; ++j)
        h[i * k + j] += rows[row + i] * rows[row + j];
  return h;
}

InputProducts inputProducts(const std::vector<float> &rows, int64_t k, int64_t most) {
  InputProducts p(k, most);
  for (int64_t part = 0; part < p.parts(); ++part)
    p.add(part, rows.data(), int64_t(rows.size()) / k);
  return p;
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
  const std::vector<float> rows = dependentRows(k, 40), h = productsOf(rows, k);
  const InputProducts products = inputProducts(rows, k, k);
  for (int64_t group : {32, 160}) {
    const auto fed = quantiseWithFeedback(w, group, products);
    ASSERT_TRUE(fed);
    EXPECT_EQ(fed->q.dtype(), DType::I4);
    EXPECT_EQ(fed->scale.dim(1), k / group);
    const QuantisedWeight alone = quantiseWeight(w, group, diagonal(h, k), DType::I4);
    EXPECT_EQ(fed->scale.byteArray(), alone.scale.byteArray());
    EXPECT_EQ(fed->zero.byteArray(), alone.zero.byteArray());
    EXPECT_LT(productError(w, *fed, h), 0.4 * productError(w, alone, h)) << group;
  }
}

TEST(ErrorFeedback, ColumnsThatDoNotDependOnEachOtherAreRoundedAlone) {
  const int64_t n = 3, k = 64;
  const Tensor w = Tensor::of<float>(drawn(size_t(n * k), 4), {n, k});
  std::vector<float> rows(size_t(k * k));
  for (int64_t i = 0; i < k; ++i)
    rows[i * k + i] = std::sqrt(1 + float(i % 7));
  const std::vector<float> h = productsOf(rows, k);
  const auto fed = quantiseWithFeedback(w, 16, inputProducts(rows, k, k));
  ASSERT_TRUE(fed);
  const QuantisedWeight alone = quantiseWeight(w, 16, diagonal(h, k), DType::I4);
  // A division of their own may take a tie to either side.
  for (int64_t i = 0; i < n * k; ++i)
    EXPECT_LE(std::abs(fed->q.asInt(i) - alone.q.asInt(i)), 1);
  EXPECT_LE(productError(w, *fed, h), 1.0001 * productError(w, alone, h));
}

TEST(ErrorFeedback, NothingWasSeen) {
  const Tensor w = Tensor::of<float>(drawn(16, 5), {1, 16});
  EXPECT_FALSE(quantiseWithFeedback(w, 16, InputProducts(16, 16)));
}

/// The rounding of the header's formula, column by column, in double precision.
std::vector<int64_t> roundedByFormula(const Tensor &w, const QuantisedWeight &scales,
                                      const std::vector<float> &h, int64_t k) {
  std::vector<int64_t> order(static_cast<size_t>(k));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return h[a * k + a] < h[b * k + b]; });
  double mean = 0;
  for (int64_t i = 0; i < k; ++i)
    mean += double(h[i * k + i]) / double(k);
  std::vector<double> l(size_t(k * k)); // lower, times its transpose the damped products
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j <= i; ++j) {
      double sum = double(h[order[i] * k + order[j]]);
      if (i == j)
        sum += 0.01 * mean;
      for (int64_t t = 0; t < j; ++t)
        sum -= l[i * k + t] * l[j * k + t];
      l[i * k + j] = i == j ? std::sqrt(sum) : sum / l[j * k + j];
    }
  std::vector<int64_t> out(static_cast<size_t>(w.count()));
  const int64_t groups = scales.scale.dim(1);
  for (int64_t row = 0; row < w.dim(0); ++row) {
    std::vector<double> error(static_cast<size_t>(k));
    for (int64_t t = k - 1; t >= 0; --t) {
      const int64_t at = row * k + order[t];
      const int64_t group = row * groups + order[t] / (k / groups);
      const int8_t zero = scales.zero.data<int8_t>()[group];
      const double s = scales.scale.data<float>()[group], v = w.data<float>()[at];
      double wanted = v;
      for (int64_t u = t + 1; u < k; ++u)
        wanted += l[u * k + t] / l[t * k + t] * error[u];
      out[at] = std::clamp<int64_t>(std::llrint(wanted / s) + zero, -8, 7);
      error[t] = v - double(out[at] - zero) * s;
    }
  }
  return out;
}

TEST(ErrorFeedback, PanelsAndSlicesOfRowsAreTheFormula) {
  const int64_t n = 170, k = 304; // more than a slice of rows, more than two panels of columns
  const Tensor w = Tensor::of<float>(drawn(size_t(n * k), 6), {n, k});
  const std::vector<float> rows = dependentRows(k, 500), h = productsOf(rows, k);
  const auto fed = quantiseWithFeedback(w, 16, inputProducts(rows, k, k));
  ASSERT_TRUE(fed);
  const std::vector<int64_t> wanted = roundedByFormula(w, *fed, h, k);
  int64_t other = 0; // a rounding that goes to the other side changes the columns after it
  for (int64_t i = 0; i < n * k; ++i)
    other += fed->q.asInt(i) != wanted[i];
  EXPECT_LT(other, n * k / 500);
}

TEST(ErrorFeedback, BlocksOfColumnsAreFedByThemselves) {
  const int64_t n = 5, k = 640;
  const Tensor w = Tensor::of<float>(drawn(size_t(n * k), 7), {n, k});
  const std::vector<float> rows = dependentRows(k, 300), h = productsOf(rows, k);
  const InputProducts products = inputProducts(rows, k, 300);
  ASSERT_EQ(products.blocks(), 3);
  EXPECT_EQ(products.block(2).first, 512);
  EXPECT_EQ(products.block(2).end, 640);
  EXPECT_NEAR(products.diagonal(600), h[600 * k + 600], 1e-3 * h[600 * k + 600]);
  const auto fed = quantiseWithFeedback(w, 64, products);
  ASSERT_TRUE(fed);
  const QuantisedWeight alone = quantiseWeight(w, 64, diagonal(h, k), DType::I4);
  EXPECT_LT(productError(w, *fed, h), 0.9 * productError(w, alone, h));
}

TEST(ErrorFeedback, DividedColumnsAreThoseOfDividedInputs) {
  const int64_t n = 6, k = 96;
  const Tensor w = Tensor::of<float>(drawn(size_t(n * k), 8), {n, k});
  std::vector<float> rows = dependentRows(k, 120), divisors(static_cast<size_t>(k));
  const InputProducts products = inputProducts(rows, k, k);
  for (int64_t i = 0; i < k; ++i)
    divisors[i] = i % 3 ? 2.0F : 0.5F;
  for (size_t i = 0; i < rows.size(); ++i)
    rows[i] /= divisors[i % size_t(k)];
  const auto fed = quantiseWithFeedback(w, 32, products, divisors),
             divided = quantiseWithFeedback(w, 32, inputProducts(rows, k, k));
  ASSERT_TRUE(fed && divided);
  EXPECT_EQ(fed->q.byteArray(), divided->q.byteArray());
  const double error = productError(w, *fed, productsOf(rows, k));
  EXPECT_NEAR(errorWithFeedback(w, 32, products, divisors), error, 1e-3 * error);
}

} // namespace

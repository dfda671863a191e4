#include "passes/quantize/ErrorFeedback.h"

#include "ir/ops/Blas.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Parallel.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gpt2c {

namespace {

/// A lower triangular L with a = L L^T in the place of a[k, k]'s lower half; false: a is not
/// positive.
bool factorise(std::vector<double> &a, int64_t k) {
  constexpr int64_t block = 64;
  for (int64_t first = 0; first < k; first += block) {
    const int64_t end = std::min(k, first + block), width = end - first;
    if (first > 0) { // what the columns before explain
      std::vector<double> before(size_t((k - first) * width));
      matrixProduct<double>({a.data() + first * k, k}, {a.data() + first * k, k, true},
                            {before.data(), width}, k - first, width, first, false);
      for (int64_t i = first; i < k; ++i)
        for (int64_t j = first; j < end; ++j)
          a[i * k + j] -= before[(i - first) * width + j - first];
    }
    for (int64_t j = first; j < end; ++j) {
      double *const own = &a[j * k];
      const double square = own[j] - std::inner_product(own + first, own + j, own + first, 0.0);
      if (!(square > 0))
        return false;
      own[j] = std::sqrt(square);
      llvm::parallelFor(j + 1, k, [&](size_t i) {
        double *const row = &a[i * size_t(k)];
        row[j] = (row[j] - std::inner_product(row + first, row + j, own + first, 0.0)) / own[j];
      });
    }
  }
  return true;
}

constexpr double damping = 0.01; // of the mean of the diagonal, is added to it

/// Columns from the smallest to the largest diagonal: the last is rounded first.
std::vector<int64_t> orderOf(llvm::ArrayRef<float> moments) {
  std::vector<int64_t> order(moments.size());
  std::iota(order.begin(), order.end(), 0);
  llvm::stable_sort(order, [&](int64_t a, int64_t b) { return moments[a] < moments[b]; });
  return order;
}

/// Row t, from t + 1 on: what of the error of column u > t column t takes over.
std::optional<std::vector<float>> shares(llvm::ArrayRef<float> products,
                                         llvm::ArrayRef<int64_t> order, double added) {
  const auto k = int64_t(order.size());
  std::vector<double> a(size_t(k * k));
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j <= i; ++j)
      a[i * k + j] = double(products[order[i] * k + order[j]]) + (i == j ? added : 0);
  if (!factorise(a, k))
    return std::nullopt;
  std::vector<float> out(size_t(k * k));
  llvm::parallelFor(0, k, [&](size_t t) {
    for (auto u = int64_t(t) + 1; u < k; ++u)
      out[t * size_t(k) + size_t(u)] = float(a[u * k + int64_t(t)] / a[t * size_t(k) + t]);
  });
  return out;
}

float dot(const float *a, const float *b, int64_t count) {
  constexpr int64_t lanes = 16;
  float sums[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int64_t lane = 0; lane < lanes; ++lane)
      sums[lane] += a[i + lane] * b[i + lane];
  for (; i < count; ++i)
    sums[i % lanes] += a[i] * b[i];
  return std::accumulate(sums, sums + lanes, 0.0F);
}

} // namespace

std::optional<QuantisedWeight> quantiseWithFeedback(const Tensor &w, int64_t group,
                                                    llvm::ArrayRef<float> products) {
  const int64_t n = w.dim(0), k = w.dim(1);
  std::vector<float> moments(static_cast<size_t>(k));
  for (int64_t i = 0; i < k; ++i)
    moments[i] = products[i * k + i];
  const double mean = std::accumulate(moments.begin(), moments.end(), 0.0) / double(k);
  const std::vector<int64_t> order = orderOf(moments);
  const auto share = mean > 0 ? shares(products, order, damping * mean) : std::nullopt;
  if (!share)
    return std::nullopt;
  QuantisedWeight out = quantiseWeight(w, group, moments, DType::I4);
  const Tensor wide = w.cast(DType::F32);
  const int64_t groups = out.scale.dim(1), size = k / groups;
  llvm::parallelFor(0, n, [&](size_t row) {
    const float *const from = wide.data<float>() + int64_t(row) * k,
                       *const scales =
                           std::as_const(out.scale).data<float>() + int64_t(row) * groups;
    std::vector<float> error(static_cast<size_t>(k));
    std::vector<double> steps(static_cast<size_t>(k));
    for (int64_t t = k - 1; t >= 0; --t) {
      const int64_t column = order[t];
      const float scale = scales[column / size],
                  wanted = from[column] +
                           dot(share->data() + t * k + t + 1, error.data() + t + 1, k - 1 - t),
                  step = float(floatToInt4(wanted / scale));
      steps[column] = step;
      error[t] = from[column] - step * scale;
    }
    out.q.store(int64_t(row) * k, steps);
  });
  return out;
}

} // namespace gpt2c

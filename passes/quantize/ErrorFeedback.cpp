#include "passes/quantize/ErrorFeedback.h"

#include "ir/ops/Blas.h"
#include "ir/ops/Workers.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace gpt2c {

namespace {

/// Calls f(first, end) for parts of 0 .. count of `each`, on all threads.
void forSlices(int64_t count, int64_t each, llvm::function_ref<void(int64_t, int64_t)> f) {
  forParts((count + each - 1) / each,
           [&](int64_t i) { f(i * each, std::min(count, (i + 1) * each)); });
}

constexpr int64_t panel = 128; // columns at a time, and rows for each thread

//===-- triangles -----------------------------------------------------------------------------===//

/// Row i of a panel [first, end) of a triangle whose rows before i are done.
void solveRow(std::vector<double> &a, int64_t k, int64_t i, int64_t first, int64_t end) {
  double *const row = &a[size_t(i * k)];
  for (int64_t j = first; j < std::min(i, end); ++j) {
    const double *const own = &a[size_t(j * k)];
    row[j] = (row[j] - std::inner_product(row + first, row + j, own + first, 0.0)) / own[j];
  }
}

/// A lower triangular L with a = L L^T in the place of a[k, k]'s lower half; false: a is not
/// positive.
bool factorise(std::vector<double> &a, int64_t k) {
  for (int64_t first = 0; first < k; first += panel) {
    const int64_t end = std::min(k, first + panel), width = end - first;
    if (first > 0) // what the columns before explain
      forSlices(k - first, panel, [&](int64_t from, int64_t to) {
        std::vector<double> before(size_t((to - from) * width));
        matrixProduct<double>({a.data() + (first + from) * k, k}, {a.data() + first * k, k, true},
                              {before.data(), width}, to - from, width, first, false);
        for (int64_t i = from; i < to; ++i)
          for (int64_t j = 0; j < width; ++j)
            a[size_t((first + i) * k + first + j)] -= before[size_t((i - from) * width + j)];
      });
    for (int64_t i = first; i < end; ++i) {
      solveRow(a, k, i, first, end);
      double *const row = &a[size_t(i * k)];
      const double square = row[i] - std::inner_product(row + first, row + i, row + first, 0.0);
      if (!(square > 0))
        return false;
      row[i] = std::sqrt(square);
    }
    forSlices(k - end, panel, [&](int64_t from, int64_t to) {
      for (int64_t i = end + from; i < end + to; ++i)
        solveRow(a, k, i, first, end);
    });
  }
  return true;
}

//===-- a block of columns --------------------------------------------------------------------===//

constexpr double damping = 0.01; // of the mean of the diagonal, is added to it

/// The columns of a block in the order of their diagonal, the largest last, which is rounded first,
/// and what of their errors others take over.
struct BlockShares {
  std::vector<int64_t> order; ///< columns of the block
  /// [k, k]; row t, from t + 1 on: what of the error of column order[u], u > t, t takes over.
  std::vector<float> shares;
};

std::optional<BlockShares> sharesOf(const InputProducts &products, int64_t block,
                                    llvm::ArrayRef<float> moments, llvm::ArrayRef<float> divisors) {
  const auto [first, end] = products.block(block);
  const int64_t k = end - first;
  moments = moments.slice(size_t(first), size_t(k));
  const double mean = std::accumulate(moments.begin(), moments.end(), 0.0) / double(k);
  if (!(mean > 0))
    return std::nullopt;
  BlockShares out;
  std::vector<int64_t> &order = out.order;
  order.resize(size_t(k));
  std::iota(order.begin(), order.end(), 0);
  llvm::stable_sort(order, [&](int64_t a, int64_t b) { return moments[a] < moments[b]; });
  auto divisor = [&](int64_t column) {
    return divisors.empty() ? 1.0 : double(divisors[size_t(first + column)]);
  };
  std::vector<double> a(size_t(k * k));
  const float *const sums = products.sums(block);
  forSlices(k, panel, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i)
      for (int64_t j = 0; j <= i; ++j) {
        const auto [least, most] = std::minmax(order[i], order[j]);
        double &at = a[size_t(i * k + j)];
        at = double(sums[most * k + least]) / (divisor(least) * divisor(most));
        if (i == j)
          at += damping * mean;
      }
  });
  if (!factorise(a, k))
    return std::nullopt;
  out.shares.resize(size_t(k * k));
  forSlices(k, 16, [&](int64_t from, int64_t to) {
    for (int64_t u = from + 1; u < k; ++u)
      for (int64_t t = from; t < std::min(u, to); ++t)
        out.shares[size_t(t * k + u)] = float(a[size_t(u * k + t)] / a[size_t(t * k + t)]);
  });
  return out;
}

/// Scales of some rows, and the least of what numbers less zero points are, [groups, rows] each.
struct RowScales {
  std::vector<float> scale, least;
  int64_t group;
};

/// Rounds some rows of a block of columns. Rows lie side by side here, columns one below the other.
class Rounding {
public:
  Rounding(const BlockShares &shares, int64_t rows)
      : shares_(shares), k_(int64_t(shares.order.size())), rows_(rows), error_(size_t(k_ * rows)),
        taken_(size_t(panel * rows)) {}

  /// `steps` are weights [k, rows] in front and their numbers behind, counted from -8; the block
  /// begins at column `first`.
  void run(std::vector<float> &steps, const RowScales &scales, int64_t first) {
    for (int64_t end = k_; end > 0; end -= std::min(end, panel)) {
      const int64_t begin = std::max<int64_t>(0, end - panel);
      matrixProduct<float>({shares_.shares.data() + begin * k_ + end, k_},
                           {error_.data() + end * rows_, rows_}, {taken_.data(), rows_},
                           end - begin, rows_, k_ - end, false);
      for (int64_t t = end - 1; t >= begin; --t) {
        const int64_t column = shares_.order[size_t(t)];
        const auto of = size_t((first + column) / scales.group * rows_);
        roundColumn(t, begin, &steps[size_t(column * rows_)], &scales.scale[of], &scales.least[of]);
      }
    }
  }

private:
  void roundColumn(int64_t t, int64_t begin, float *steps, const float *scales,
                   const float *least) {
    constexpr float magic = 0x1.8p23F; // rounds to the nearest
    float *const error = &error_[size_t(t * rows_)];
    const float *const taken = &taken_[size_t((t - begin) * rows_)];
    for (int64_t r = 0; r < rows_; ++r) {
      const float w = steps[r],
                  wanted = std::clamp((w + taken[r]) / scales[r], least[r], least[r] + 15),
                  step = (wanted + magic) - magic;
      error[r] = w - step * scales[r];
      steps[r] = step - least[r] - 8;
    }
    for (int64_t u = begin; u < t; ++u) {
      const float share = shares_.shares[size_t(u * k_ + t)];
      float *const to = &taken_[size_t((u - begin) * rows_)];
      for (int64_t r = 0; r < rows_; ++r)
        to[r] += share * error[r];
    }
  }

  const BlockShares &shares_;
  int64_t k_, rows_;
  std::vector<float> error_, taken_; // of columns in their order; of those of a panel
};

float dot(const float *a, const float *b, int64_t count) {
  constexpr int64_t lanes = 16; // sums that a vector unit can keep apart
  float sums[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int64_t lane = 0; lane < lanes; ++lane)
      sums[lane] += a[i + lane] * b[i + lane];
  for (; i < count; ++i)
    sums[i % lanes] += a[i] * b[i];
  return std::accumulate(sums, sums + lanes, 0.0F);
}

/// to[columns, rows] of from[rows, columns], whose rows are `stride` apart.
void transpose(const float *from, int64_t stride, int64_t rows, int64_t columns, float *to) {
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = 0; r < rows; ++r)
      to[c * rows + r] = from[r * stride + c];
}

} // namespace

std::optional<QuantisedWeight> quantiseWithFeedback(const Tensor &w, int64_t group,
                                                    const InputProducts &products,
                                                    llvm::ArrayRef<float> divisors) {
  const int64_t n = w.dim(0), k = w.dim(1);
  std::vector<float> moments(static_cast<size_t>(k));
  for (int64_t i = 0; i < k; ++i)
    moments[i] = products.diagonal(i) / (divisors.empty() ? 1 : divisors[i] * divisors[i]);
  QuantisedWeight out = quantiseWeight(w, group, moments, DType::I4);
  const Tensor wide = w.cast(DType::F32);
  const int64_t groups = out.scale.dim(1);
  for (int64_t b = 0; b < products.blocks(); ++b) {
    const auto shares = sharesOf(products, b, moments, divisors);
    if (!shares)
      return std::nullopt;
    const auto [first, end] = products.block(b);
    const int64_t width = end - first;
    constexpr int64_t each = 160; // rows: more than rowProduct() is for
    forSlices(n, each, [&, first = first](int64_t from, int64_t to) {
      const int64_t rows = to - from;
      std::vector<float> steps(size_t(width * rows));
      RowScales scales{std::vector<float>(size_t(groups * rows)),
                       std::vector<float>(size_t(groups * rows)), k / groups};
      transpose(wide.data<float>() + from * k + first, k, rows, width, steps.data());
      for (int64_t g = 0; g < groups; ++g)
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t of = (from + r) * groups + g;
          scales.scale[size_t(g * rows + r)] = std::as_const(out.scale).data<float>()[of];
          scales.least[size_t(g * rows + r)] =
              float(-8 - std::as_const(out.zero).data<int8_t>()[of]);
        }
      Rounding(*shares, rows).run(steps, scales, first);
      std::vector<double> row(static_cast<size_t>(width));
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < width; ++c)
          row[size_t(c)] = double(steps[size_t(c * rows + r)]);
        out.q.store((from + r) * k + first, row);
      }
    });
  }
  return out;
}

double errorWithFeedback(const Tensor &w, int64_t group, const InputProducts &products,
                         llvm::ArrayRef<float> divisors) {
  const auto q = quantiseWithFeedback(w, group, products, divisors);
  if (!q)
    return std::numeric_limits<double>::infinity();
  const Tensor wide = w.cast(DType::F32), rounded = floatsOf(*q, DType::F32);
  const int64_t n = w.dim(0), k = w.dim(1);
  std::vector<double> sums(static_cast<size_t>(n));
  forSlices(n, 1, [&](int64_t row, int64_t) {
    std::vector<float> off(static_cast<size_t>(k));
    for (int64_t i = 0; i < k; ++i)
      off[size_t(i)] = (wide.data<float>()[row * k + i] - rounded.data<float>()[row * k + i]) /
                       (divisors.empty() ? 1 : divisors[size_t(i)]);
    for (int64_t b = 0; b < products.blocks(); ++b) {
      const auto [first, end] = products.block(b);
      const float *const error = off.data() + first, *h = products.sums(b);
      for (int64_t i = 0; i < end - first; ++i, h += end - first)
        sums[size_t(row)] +=
            double(error[i]) * (2 * double(dot(h, error, i)) + double(h[i]) * double(error[i]));
    }
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

} // namespace gpt2c

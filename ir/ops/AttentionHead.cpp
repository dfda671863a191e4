#include "ir/ops/AttentionHead.h"

#include "ir/ops/Blas.h"
#include "ir/ops/Exponentials.h"
#include "ir/ops/RowProduct.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gpt2c {

AttrSpec windowAttr() {
  return {"window", AttrKind::Int, Attr(int64_t(0)),
          "a query sees the last so many of its keys; 0: all"};
}

AttrSpec softCapAttr() {
  return {"soft_cap", AttrKind::Float, Attr(0.0),
          "scores are cap tanh(score / cap); 0: as they are"};
}

/// The dot product, in lanes that a vector unit can keep apart.
template <typename T> static T dotProduct(const T *a, const T *b, int64_t n) {
  constexpr int lanes = 16;
  T acc[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (int l = 0; l < lanes; ++l)
      acc[l] += a[i + l] * b[i + l];
  for (; i < n; ++i)
    acc[i % lanes] += a[i] * b[i];
  T sum = 0;
  for (T v : acc)
    sum += v;
  return sum;
}

/// y += a x
template <typename T>
static void addScaled(T a, const T *__restrict x, T *__restrict y, int64_t n) {
  constexpr int lanes = 16;
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (int l = 0; l < lanes; ++l)
      y[i + l] += a * x[i + l];
  for (; i < n; ++i)
    y[i] += a * x[i];
}

static void exponentials(double *x, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    x[i] = std::exp(x[i]);
}

/// Scores of query s become probabilities, 0 for hidden keys; all are 0 when no key is visible. A
/// visible score that is NaN or infinite makes them NaN. Sums are in lanes by the number of the
/// key, so that keys behind the last visible one do not change them.
template <typename T>
static void softmaxRow(T *scores, int64_t keys, int64_t s, ScoreForm<T> form, Visibility visible) {
  constexpr int lanes = 16;
  constexpr T hidden = -std::numeric_limits<T>::infinity();
  const int64_t end = visible.causal ? std::min(keys, visible.past + s + 1) : keys;
  const int64_t begin =
      visible.window ? std::clamp<int64_t>(visible.past + s - visible.window + 1, 0, end) : 0;
  std::fill_n(scores, begin, hidden);
  std::fill(scores + end, scores + keys, T(0));
  for (int64_t j = begin; j < end; ++j)
    scores[j] *= form.scale;
  for (int64_t j = begin; form.softCap != 0 && j < end; ++j)
    scores[j] = form.softCap * std::tanh(scores[j] / form.softCap);
  for (int64_t j = begin; form.bias && j < end; ++j)
    scores[j] += form.bias[s * form.row + j * form.key];
  for (int64_t j = begin; visible.mask && j < end; ++j)
    scores[j] = visible.mask[j] ? scores[j] : hidden;
  T tops[lanes], sums[lanes] = {};
  std::fill_n(tops, lanes, hidden);
  auto forLanes = [&](auto f) {
    int64_t j = 0;
    for (; j + lanes <= end; j += lanes)
      for (int l = 0; l < lanes; ++l)
        f(scores[j + l], l);
    for (int l = 0; j < end; ++j, ++l)
      f(scores[j], l);
  };
  forLanes([&](T x, int l) { tops[l] = x > tops[l] ? x : tops[l]; });
  const T top = *std::max_element(tops, tops + lanes);
  if (top == hidden && std::none_of(scores, scores + end, [](T x) { return std::isnan(x); })) {
    std::fill_n(scores, end, T(0));
    return;
  }
  forLanes([&](T &x, int) { x -= top; });
  exponentials(scores, end);
  forLanes([&](T x, int l) { sums[l] += x; });
  T sum = 0;
  for (T x : sums)
    sum += x;
  forLanes([&](T &x, int) { x /= sum; });
}

/// A few queries over the first `keys` keys; `scores` has `queries.count` rows of them.
template <typename T>
static void attendBlock(QueryRows<T> queries, llvm::ArrayRef<KeyRun<T>> runs, int64_t firstRow,
                        int64_t keys, int64_t d, ScoreForm<T> form, Visibility visible, T *scores) {
  // A product would cost more than it computes.
  bool single = queries.count == 1 && !RowInvariance::active();
  int64_t at = 0;
  for (const KeyRun<T> &run : runs) {
    int64_t count = std::min(run.count, keys - at);
    if (single)
      for (int64_t j = 0; j < count; ++j)
        scores[at + j] = dotProduct(queries.q, run.keys + j * run.stride, d);
    else
      matrixProduct<T>({queries.q, queries.qStride}, {run.keys, run.stride, true},
                       {scores + at, keys}, queries.count, count, d, false);
    at += count;
  }
  for (int64_t s = 0; s < queries.count; ++s) {
    softmaxRow(scores + s * keys, keys, firstRow + s, form, visible);
    std::fill_n(queries.out + s * queries.outStride, d, T(0));
  }
  at = 0;
  for (const KeyRun<T> &run : runs) {
    int64_t count = std::min(run.count, keys - at);
    if (single) {
      for (int64_t j = 0; j < count; ++j)
        addScaled(scores[at + j], run.values + j * run.stride, queries.out, d);
    } else {
      matrixProduct<T>({scores + at, keys}, {run.values, run.stride, false},
                       {queries.out, queries.outStride}, queries.count, d, count, true);
    }
    at += count;
  }
}

template <typename T>
void attentionHead(QueryRows<T> queries, llvm::ArrayRef<KeyRun<T>> runs, int64_t d,
                   ScoreForm<T> form, Visibility visible, std::vector<T> &scratch) {
  constexpr int64_t blockRows =
      64; // bounds the scores, and the work on keys that later queries alone see
  int64_t total = 0;
  for (const KeyRun<T> &run : runs)
    total += run.count;
  scratch.resize(std::max<size_t>(scratch.size(), std::min(queries.count, blockRows) * total));
  for (int64_t s = 0; s < queries.count; s += blockRows) {
    int64_t rows = std::min(blockRows, queries.count - s);
    int64_t keys = visible.causal ? std::min(total, visible.past + s + rows) : total;
    QueryRows<T> block{queries.q + s * queries.qStride, queries.out + s * queries.outStride, rows,
                       queries.qStride, queries.outStride};
    attendBlock(block, runs, s, keys, d, form, visible, scratch.data());
  }
}

template void attentionHead(QueryRows<float>, llvm::ArrayRef<KeyRun<float>>, int64_t,
                            ScoreForm<float>, Visibility, std::vector<float> &);
template void attentionHead(QueryRows<double>, llvm::ArrayRef<KeyRun<double>>, int64_t,
                            ScoreForm<double>, Visibility, std::vector<double> &);

} // namespace gpt2c

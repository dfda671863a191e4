#include "ir/ops/AttentionHead.h"

#include "ir/ops/Blas.h"
#include "ir/ops/RowProduct.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gpt2c {

AttrSpec windowAttr() {
  return {"window", AttrKind::Int, Attr(int64_t(0)),
          "a query sees the last so many of its keys; 0: all"};
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

/// Scores of query s become probabilities, 0 for hidden keys; all are 0 when no key is visible. A
/// visible score that is NaN or infinite makes them NaN.
template <typename T>
static void softmaxRow(T *scores, int64_t keys, int64_t s, T scale, Visibility visible,
                       ScoreBias<T> bias) {
  T top = -std::numeric_limits<T>::infinity(), sum = 0;
  for (int64_t j = 0; j < keys; ++j) {
    scores[j] *= scale;
    if (bias.data)
      scores[j] += bias.data[s * bias.row + j * bias.key];
    if (visible.sees(s, j) && !(scores[j] <= top)) // NaN is greater than all, and stays
      top = std::isnan(top) ? top : scores[j];
  }
  const bool none = top == -std::numeric_limits<T>::infinity();
  for (int64_t j = 0; j < keys; ++j) {
    scores[j] = visible.sees(s, j) && !none ? std::exp(scores[j] - top) : T(0);
    sum += scores[j];
  }
  for (int64_t j = 0; j < keys && sum != 0; ++j)
    scores[j] /= sum;
}

/// A few queries over the first `keys` keys; `scores` has `queries.count` rows of them.
template <typename T>
static void attendBlock(QueryRows<T> queries, llvm::ArrayRef<KeyRun<T>> runs, int64_t firstRow,
                        int64_t keys, int64_t d, T scale, Visibility visible, ScoreBias<T> bias,
                        T *scores) {
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
    softmaxRow(scores + s * keys, keys, firstRow + s, scale, visible, bias);
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
void attentionHead(QueryRows<T> queries, llvm::ArrayRef<KeyRun<T>> runs, int64_t d, T scale,
                   Visibility visible, std::vector<T> &scratch, ScoreBias<T> bias) {
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
    attendBlock(block, runs, s, keys, d, scale, visible, bias, scratch.data());
  }
}

template void attentionHead(QueryRows<float>, llvm::ArrayRef<KeyRun<float>>, int64_t, float,
                            Visibility, std::vector<float> &, ScoreBias<float>);
template void attentionHead(QueryRows<double>, llvm::ArrayRef<KeyRun<double>>, int64_t, double,
                            Visibility, std::vector<double> &, ScoreBias<double>);

} // namespace gpt2c

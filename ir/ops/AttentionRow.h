// One row of attention, shared by attention and cached_attention.
#pragma once

#include "llvm/ADT/ArrayRef.h"

#include <cmath>
#include <cstdint>
#include <limits>

namespace gpt2c {

/// Consecutive keys and values of one head: row j is at keys + j * stride and values + j * stride.
template <typename T> struct KeyRun {
  const T *keys;
  const T *values;
  int64_t count;
  int64_t stride;
};

/// The dot product, in lanes that a vector unit can keep apart.
template <typename T> T dotProduct(const T *a, const T *b, int64_t n) {
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

/// out[d] = sum over visible keys j of softmax(scale * q.k_j) v_j. `visible(j)` tells whether key
/// j, counted over all runs, takes part; a row without a visible key is zeros. `scores` has room
/// for all keys.
template <typename T, typename Visible>
void attentionRow(const T *q, llvm::ArrayRef<KeyRun<T>> runs, int64_t d, T scale, Visible visible,
                  T *scores, T *out) {
  constexpr T hidden = -std::numeric_limits<T>::infinity();
  T top = hidden;
  int64_t j = 0;
  bool any = false;
  for (const KeyRun<T> &run : runs)
    for (int64_t i = 0; i < run.count; ++i, ++j) {
      scores[j] = hidden;
      if (!visible(j))
        continue;
      any = true;
      scores[j] = scale * dotProduct(q, run.keys + i * run.stride, d);
      top = scores[j] > top || scores[j] != scores[j] ? scores[j] : top;
    }
  for (int64_t k = 0; k < d; ++k)
    out[k] = 0;
  if (!any)
    return;
  T sum = 0;
  j = 0;
  for (const KeyRun<T> &run : runs)
    for (int64_t i = 0; i < run.count; ++i, ++j) {
      if (!visible(j))
        continue;
      T p = std::exp(scores[j] - top);
      sum += p;
      const T *v = run.values + i * run.stride;
      for (int64_t k = 0; k < d; ++k)
        out[k] += p * v[k];
    }
  for (int64_t k = 0; k < d; ++k)
    out[k] /= sum;
}

} // namespace gpt2c

// One head of attention, shared by the attention ops.
#pragma once

#include "ir/Op.h"

#include "llvm/ADT/ArrayRef.h"

#include <cstdint>
#include <vector>

namespace gpt2c {

/// Consecutive keys and values of one head: row j is at keys + j * stride and values + j * stride.
template <typename T> struct KeyRun {
  const T *keys;
  const T *values;
  int64_t count;
  int64_t stride;
};

/// Queries and results of one head: row s is at q + s * qStride and out + s * outStride.
template <typename T> struct QueryRows {
  const T *q;
  T *out;
  int64_t count;
  int64_t qStride, outStride;
};

/// Which keys, counted over all runs, a query sees.
struct Visibility {
  bool causal = false;
  int64_t past = 0;              // causal: query s sees keys j <= past + s
  int64_t window = 0;            // and of those the last so many; 0: all
  const int64_t *mask = nullptr; // 0 hides a key; null: none is hidden

  bool sees(int64_t s, int64_t j) const {
    return (!causal || j <= past + s) && (!window || j > past + s - window) &&
           (!mask || mask[j] != 0);
  }
};

/// The attribute `window` of the ops of attention: a causal query sees its own key and those of the
/// window - 1 tokens before it; 0: of all tokens before it.
AttrSpec windowAttr();

/// The attribute `soft_cap` of the ops of attention: scores are cap tanh(score / cap); 0: they are
/// as they are.
AttrSpec softCapAttr();

/// How the products of a head's queries and keys become scores: cap(scale * product) + bias(s, j),
/// with cap(x) = softCap tanh(x / softCap) where softCap is not 0, else x.
template <typename T> struct ScoreForm {
  T scale, softCap = 0;
  const T *bias = nullptr; ///< bias(s, j) at bias + s * row + j * key; null: nothing
  int64_t row = 0, key = 0;
};
/// As the attributes of `op` say.
template <typename T> ScoreForm<T> scoreForm(const Op &op) {
  return {T(op.floatAttr("scale")), T(op.floatAttr("soft_cap"))};
}

/// out[s] = sum over visible keys j of softmax_j(score(s, j)) v[j], with d elements a row; a query
/// that sees none, or only such of bias -inf, gives zeros, one with a score of NaN or +inf gives
/// NaN. Hidden values must be finite: they count 0 times. `scratch` is grown.
template <typename T>
void attentionHead(QueryRows<T> queries, llvm::ArrayRef<KeyRun<T>> runs, int64_t d,
                   ScoreForm<T> form, Visibility visible, std::vector<T> &scratch);

extern template void attentionHead(QueryRows<float>, llvm::ArrayRef<KeyRun<float>>, int64_t,
                                   ScoreForm<float>, Visibility, std::vector<float> &);
extern template void attentionHead(QueryRows<double>, llvm::ArrayRef<KeyRun<double>>, int64_t,
                                   ScoreForm<double>, Visibility, std::vector<double> &);

} // namespace gpt2c

// How keys and values lie in a KV state: blocks of `tokens` rows of d elements, of a head's context
// or of its page. In a type whose rows have a scale (ir/Format.h) the scales of the rows follow
// them in f32, so that a block takes tokens (d + 4) bytes; the last dimension of the state is d
// + 4.
#pragma once

#include "ir/Tensor.h"

#include <vector>

namespace gpt2c {

class StateRows {
public:
  /// Of the last two dimensions of a state.
  StateRows(DType dtype, int64_t tokens, int64_t row);

  int64_t tokens() const { return tokens_; }
  int64_t blockBytes() const { return tokens_ * (d_ * byteSize(dtype_) + scaleBytes_); }

  /// Row `position` from the d elements of `from` that start at element `at`; T is what a scale is
  /// found in.
  template <typename T>
  void write(char *block, int64_t position, const Tensor &from, int64_t at) const;
  /// The first `count` rows as T, converted into `room`, which has count d elements, unless they
  /// are stored as T.
  template <typename T> const T *read(const char *block, int64_t count, T *room) const;

private:
  DType dtype_;
  int64_t tokens_, scaleBytes_, d_;
};

#define STATE_ROWS(PREFIX, T)                                                                      \
  PREFIX void StateRows::write<T>(char *, int64_t, const Tensor &, int64_t) const;                 \
  PREFIX const T *StateRows::read<T>(const char *, int64_t, T *) const;
STATE_ROWS(extern template, float)
STATE_ROWS(extern template, double)

} // namespace gpt2c

// A KV state of bytes as tests have it: what its rows stand for, and its words.
#pragma once

#include "Suite.h"

#include "ir/Format.h"

namespace gpt2c::kernels {

/// Blocks of `tokens` rows of d elements, then the scales of the rows.
class StateBytes {
public:
  StateBytes() = default;
  /// Of `values`, row after row; they become what the rows stand for.
  StateBytes(Scalar type, int tokens, int d, std::vector<double> &values);

  /// Row number `row`, counted over all blocks, from what is at `values`, which becomes what it
  /// stands for.
  void set(size_t row, double *values);
  const std::vector<int> &words() const { return words_; }
  size_t count() const { return words_.size(); }

private:
  Scalar type_ = Scalar::I8;
  size_t tokens_ = 0, d_ = 0;
  std::vector<int> words_;
};

/// Makes of d elements what a row in `type` stands for.
void roundRow(Scalar type, double *values, int d);

} // namespace gpt2c::kernels

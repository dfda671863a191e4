// What int8 loses of a model, over the rows of some calls.
#pragma once

#include "verify/Compare.h"

namespace gpt2c {

/// Rows of one tensor of a plan against those of the exported graph. The median row tells a broken
/// scale from a token that int8 is bad at. Of logits P and Q it is also known what they say of the
/// next token:
///   divergence    mean over rows of KL(P || Q), in nats
///   information   mean over rows of KL(P || mean of P): what the text before tells of the next
///                 token, the divergence of a plan that knows nothing of it. Few rows tell less of
///                 it than there is.
/// Rows that are off by r of their deviation, of logits with few digits of probability each, have a
/// divergence of about r^2 times the information.
class Loss {
public:
  void add(const Tensor &got, const Tensor &expected, RowScale scale);
  /// The rows of `other`, of logits of the same tokens, too.
  void add(const Loss &other);

  int64_t rows() const { return int64_t(errors_.size()); }
  double median() const;
  double divergence() const { return divergences_ > 0 ? divergence_ / double(divergences_) : 0; }
  double information() const;

private:
  void addDivergence(llvm::ArrayRef<double> got, llvm::ArrayRef<double> expected);

  std::vector<double> errors_;
  std::vector<double> meanProbability_; ///< the sum over rows so far
  double divergence_ = 0, entropy_ = 0; ///< sums over rows
  int64_t divergences_ = 0;
};

} // namespace gpt2c

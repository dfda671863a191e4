// What is known of the values of symbols: least values of symbols and greatest values of sums.
#pragma once

#include "ir/Dim.h"

namespace gpt2c {

class DimBounds {
public:
  struct Limit {
    Dim sum;
    int64_t most = 0;
    bool operator==(const Limit &) const = default;
  };

  /// Where nothing is said a symbol is at least 0.
  void atLeast(llvm::StringRef symbol, int64_t least);
  /// sum <= most, for a sum of symbols and products of symbols times positive numbers. False when
  /// that is known already or `sum` is another expression.
  bool atMost(const Dim &sum, int64_t most);
  /// The limits that were given, in the order they came, without those that others imply.
  llvm::ArrayRef<Limit> limits() const { return limits_; }

  DimRange of(llvm::StringRef symbol) const;

  /// Every occurrence of `symbol` in the limits replaced by `by`.
  void substitute(llvm::StringRef symbol, const Dim &by);

private:
  int64_t leastOf(llvm::StringRef symbol) const;
  llvm::StringMap<int64_t> least_;
  llvm::SmallVector<Limit, 2> limits_;
};

} // namespace gpt2c

// Masks as functions of indices: the steps of a ScorePath run by the reference executor, in the
// precision of the graph, at one size.
#pragma once

#include "passes/proof/bounds/ScorePath.h"
#include "passes/proof/masks/Probe.h"

#include "llvm/ADT/SmallBitVector.h"

namespace gpt2c {

/// Scores [batch, heads, queries, keys] under `symbols`; the last query is the last key's.
struct MaskSize {
  SymbolMap symbols;
  int64_t batch = 0, heads = 0, queries = 0, keys = 0;
  std::optional<Tensor> keyMask; // i64[batch, keys], 0 hides

  int64_t past() const { return keys - queries; }
  bool shows(int64_t b, int64_t k) const {
    return !keyMask || keyMask->data<int64_t>()[b * keys + k] != 0;
  }
};

/// The operands of steps at one size. A score x behind them is factor * x + added.
class MaskTable {
public:
  /// Runs the operands of the steps in `which`; none with a reason when that is not possible.
  static std::optional<MaskTable> evaluate(const Function &f, llvm::ArrayRef<ScoreStep> steps,
                                           const llvm::SmallBitVector &which, Value *keyMask,
                                           const MaskSize &size, std::string &why);

  const MaskSize &size() const { return size_; }
  /// 1 where all sequences, or all heads, are alike.
  int64_t batches() const { return batches_; }
  int64_t heads() const { return heads_; }
  /// One row of `keys` elements behind the steps in `which`; the others only turn signs.
  void row(int64_t b, int64_t h, int64_t q, const llvm::SmallBitVector &which,
           llvm::MutableArrayRef<double> factor, llvm::MutableArrayRef<double> added) const;

private:
  struct Operand {
    Tensor values;
    std::array<int64_t, 4> strides = {}; // 0 along axes of length 1
    void load(int64_t b, int64_t h, int64_t q, llvm::MutableArrayRef<double> row) const;
  };
  std::optional<Operand> operand(Tensor t);

  MaskSize size_;
  std::vector<ScoreStep> steps_;
  std::vector<Operand> operands_, fills_; // invalid where a step has none or was not run
  int64_t batches_ = 1, heads_ = 1;
  mutable std::vector<double> first_, second_;
};

} // namespace gpt2c

// What an evaluated mask is: none, causal, with a window or without, or one of them under a key
// mask.
#pragma once

#include "passes/proof/masks/MaskTable.h"

namespace gpt2c {

/// exp of this below the highest of a row is 0 in single precision.
constexpr double underflowBound = 104;

/// Holds every row of every table against softmax(scale x) over the keys that a causal mask, or
/// none, and the key mask let a query see. A causal mask may show the last keys alone, a window;
/// its size is that of the first row that has one. A row that the key mask leaves without a key is
/// nobody's: its token is padding.
class MaskJudge {
public:
  /// `which`: the steps that count. `windows`: whether a causal mask may have one.
  MaskJudge(const ScorePath &path, llvm::SmallBitVector which, bool windows)
      : path_(path), which_(std::move(which)), windows_(windows) {}

  /// False when neither fits any more.
  bool see(const MaskTable &table);
  const Obstacle &reason() const { return reason_; }

  double scale() const { return scale_; }
  bool isCausal() const { return causal_; }
  /// Keys that a query of a causal mask sees at most; 0: all up to its own.
  int64_t window() const { return causal_ ? window_ : 0; }
  /// No score may be beyond this, for finite numbers to hide; infinity when none does.
  double highestScore() const;

private:
  bool row(const MaskTable &table, int64_t b, int64_t h, int64_t q);
  bool findWindow(const MaskTable &table, int64_t b, int64_t last);
  bool scores(const MaskTable &table, int64_t h, int64_t q);
  bool fails(std::string reason, const char *attribute);
  const Op *blamed(bool factor) const;

  const ScorePath &path_;
  llvm::SmallBitVector which_;
  const bool windows_;
  bool none_ = true, causal_ = true;
  int64_t window_ = 0;    // 0: none so far
  int64_t farthest_ = -1; // the most keys that lie between a query and one that it saw
  double scale_ = 0;
  double selected_ = -INFINITY, added_ = -INFINITY; // the highest finite numbers that hide
  Obstacle reason_;
  std::vector<double> factor_, addend_;
};

/// Whether rows that see no key, and what is done to probabilities, are as attention has them:
/// zeros, and nothing. `steps`: those that `table` has; of them those in `biased` are added as they
/// are. `after`: of the path's steps behind the softmax; null when there are none.
bool rowsAsInGraph(const ScorePath &path, const llvm::SmallBitVector &steps,
                   const llvm::SmallBitVector &biased, const MaskTable &table,
                   const MaskTable *after, Obstacle &why);

} // namespace gpt2c

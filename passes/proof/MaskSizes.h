// At which sizes a mask is evaluated, so that nothing of it stays unseen.
#pragma once

#include "passes/proof/MaskTable.h"

namespace gpt2c {

/// Sizes of the scores of one attention.
class MaskSizes {
public:
  /// `keyMask` may be null. `context`: tokens that were asked for; 0: as many as the graph has.
  MaskSizes(const Function &f, const ScorePath &path, const llvm::SmallBitVector &evaluated,
            Value *keyMask, int64_t context);

  /// The steps' tables: for one to six tokens under every key mask there is, for the model's full
  /// context, a third of it, and with a past of nothing, one token, half and all but the last.
  /// Empty with a reason when one of them cannot be evaluated.
  ///
  /// The full context is the number of rows of the table of positions, or the side of a buffer
  /// beyond which the graph fails. Where there is neither, numbers in the mask tell: a window of
  /// 256 keys shows from 257 keys on.
  std::vector<MaskTable> tables(std::string &why);

  /// Why the tables do not show all of the mask; empty when they do.
  const std::string &missing() const { return missing_; }

private:
  const Op *asksForLength() const;
  std::optional<MaskSize> at(int64_t batch, int64_t queries, int64_t keys) const;
  std::optional<MaskTable> table(const MaskSize &size, std::string &why) const;
  bool add(std::vector<MaskTable> &tables, int64_t queries, int64_t keys, std::string &why) const;
  bool addPatterns(std::vector<MaskTable> &tables, int64_t queries, int64_t keys,
                   llvm::ArrayRef<std::vector<bool>> patterns, std::string &why) const;
  int64_t rowsOfPositions() const;
  int64_t rowsOfRopes() const;
  bool readsBeyond(Value *index, int64_t rows) const;
  llvm::SmallVector<int64_t> tellingNumbers(bool counts) const;
  int64_t fullContext();
  std::optional<MaskTable> longest(std::string &why);

  const Function &f_;
  const ScorePath &path_;
  const llvm::SmallBitVector &evaluated_;
  Value *keyMask_;
  int64_t context_;
  bool hasPast_ = false, square_ = false; // more keys than queries; as many
  std::vector<const Op *> ops_;           // of the steps' operands
  std::string missing_;
};

} // namespace gpt2c

// At which sizes a mask is evaluated, so that nothing of it stays unseen.
#pragma once

#include "passes/proof/masks/MaskTable.h"

namespace gpt2c {

/// Sizes of the scores of one attention.
class MaskSizes {
public:
  /// `keyMask` may be null. `context`: tokens that were asked for; 0: as many as the graph has.
  MaskSizes(const Function &f, const ScorePath &path, const llvm::SmallBitVector &evaluated,
            Value *keyMask, int64_t context);

  /// The steps' tables: for the model's full context under masks that hide and show every key, and
  /// for some smaller sizes. They show all of the mask, since its elements are functions of where
  /// their query and key stand and of the key's own entry (MaskDependence.h). Empty with a reason
  /// where they are not, or when one of the tables cannot be evaluated.
  ///
  /// The full context is the number of rows of the table of positions, or the side of a buffer
  /// beyond which the graph fails. Where there is neither, it is the positions of a rope, or 4096;
  /// a mask that distances alone tell, and that is the same behind some, is evaluated for as many.
  std::vector<MaskTable> tables(Obstacle &why);

  /// Why the tables do not show all of the mask; empty when they do.
  const std::string &missing() const { return missing_; }

private:
  std::optional<MaskSize> at(int64_t batch, int64_t queries, int64_t keys) const;
  std::optional<MaskTable> table(const MaskSize &size, std::string &why) const;
  bool add(std::vector<MaskTable> &tables, int64_t queries, int64_t keys, std::string &why) const;
  bool addPatterns(std::vector<MaskTable> &tables, int64_t queries, int64_t keys,
                   llvm::ArrayRef<std::vector<bool>> patterns, std::string &why) const;
  std::optional<Obstacle> dependence(int64_t context) const;
  bool isTheSameBehind(int64_t shown, int64_t context) const;
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
  int64_t bound_ = 0;                     // tokens that a graph without a table may be given
  bool hasPast_ = false, square_ = false; // more keys than queries; as many
  std::vector<const Op *> ops_;           // of the steps' operands
  std::string missing_;
};

} // namespace gpt2c

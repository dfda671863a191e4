// What the elements of a mask may depend on, so that tables at one size show all of it.
#pragma once

#include "passes/proof/bounds/ScorePath.h"

#include "llvm/ADT/SmallBitVector.h"

namespace gpt2c {

/// Why `steps`, of which those in `which` count, may be others for other lengths, sequences or
/// tokens; none where each element is a function of its head, of where its query and its key stand
/// among all tokens, and of the key's own entry in `keyMask` (may be null). What is made of lengths
/// alone is evaluated for all of them up to `context` keys. `steps` belong to the scores of `path`.
std::optional<Obstacle> maskDependence(const ScorePath &path, llvm::ArrayRef<ScoreStep> steps,
                                       const llvm::SmallBitVector &which, const Value *keyMask,
                                       int64_t context);

/// Whether each element of what `step` reads looks at the key's own entry of `keyMask` alone, if at
/// any of it.
bool isByOwnEntries(const ScorePath &path, const ScoreStep &step, const Value *keyMask);

/// Whether steps that maskDependence has nothing against are functions of the distance between
/// query and key alone, and the same from a distance of `shown` - 1 to one of `most` - 1, either
/// way, as at the former. Evaluated for every distance, head and entry of the key mask.
bool isTheSameBeyond(const ScorePath &path, llvm::ArrayRef<ScoreStep> steps,
                     const llvm::SmallBitVector &which, const Value *keyMask, int64_t shown,
                     int64_t most);

} // namespace gpt2c

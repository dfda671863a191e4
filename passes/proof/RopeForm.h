// Rotary position embeddings (Su et al. 2021, RoFormer), whatever their spelling.
#pragma once

#include "passes/proof/masks/Probe.h"

namespace gpt2c {

/// y = x, with pairs of the first 2 r elements of the last axis turned by position times frequency:
///   (x_i, x_j) -> s (cos a x_i - sin a x_j, sin a x_i + cos a x_j), a = position * frequencies[k]
/// with (i, j) = (k, r + k), or (2k, 2k + 1) when `interleaved`, and s = `scale`.
struct RopeForm {
  Value *x = nullptr;
  /// Integers that say where tokens stand; null where row i of a table belongs to token i.
  Value *positions = nullptr;
  bool interleaved = false;
  double scale = 1;
  std::vector<double> frequencies;
  /// Compared at every position in front of this one.
  int64_t positionsCompared = 0;
  /// s cos a and s sin a as the graph has them, f32[positionsCompared, r].
  Tensor cos, sin;
  /// The axis of x along which tokens stand.
  unsigned tokenAxis = 0;
  /// What computes y from x; tables and angles are behind it.
  llvm::SmallVector<Op *> ops;
};

/// The rotation that `root` is the last op of. By structure y is linear in x, each of its elements
/// a sum of elements of x of the same token and head times factors that x has no part in; the
/// factors are evaluated in double precision at every position of their tables, or at `context`
/// positions where they are computed, and compared with sines and cosines. None where one of it
/// does not hold; `why` then says what, if `root` turns pairs at all.
std::optional<RopeForm> ropeForm(const Function &f, Op *root, int64_t context, std::string &why);

} // namespace gpt2c

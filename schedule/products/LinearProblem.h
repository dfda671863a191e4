// A product with weights, y[rows, n] = x[rows, k] W[n, k]^T, as kernels are asked about it.
#pragma once

#include "schedule/Abilities.h"
#include "schedule/Scalar.h"
#include "schedule/Target.h"
#include "schedule/products/ProductEnd.h"

#include "llvm/Support/MathExtras.h"

#include <cstdint>

namespace gpt2c {

using llvm::divideCeilSigned;

/// What a product may want, by schedule/Abilities.def.
enum class LinearAbility : uint8_t {
#define LINEAR_ABILITY(Name, text) Name,
#include "schedule/Abilities.def"
};
using LinearAbilities = Abilities<LinearAbility>;
constexpr llvm::StringRef nameOf(LinearAbility a) {
  constexpr llvm::StringLiteral names[] = {
#define LINEAR_ABILITY(Name, text) text,
#include "schedule/Abilities.def"
  };
  return names[size_t(a)];
}

/// Sizes and types. `rows` is the most there can be.
struct LinearShape {
  Scalar x, w, y;
  int64_t n, k, rows;
  int64_t wGroup = 0;  ///< of quantised w: elements of K that share a scale, when not all do
  bool wZeros = false; ///< a zero point stands beside each scale of w
  int64_t xGroup = -1; ///< elements of x that share a scale when the product quantises it; 0: a row
  bool tf32 = false;   ///< both operands in fp32, and tensor cores may multiply them
  /// The kernel is one of several for other numbers of rows that sum up in one order: kernels that
  /// take any number of rows alone, and no list of configurations is cut short.
  bool batchInvariant = false;
  Target target = {};

  /// With int8 weights that a dequantize has made floats of.
  LinearShape widened() const {
    LinearShape wide = *this;
    wide.w = x;
    wide.wGroup = 0;
    wide.wZeros = false;
    wide.xGroup = -1;
    return wide;
  }

  bool isHalf() const { return x == Scalar::F16 && w == Scalar::F16; }
  /// Two-byte floats, both of one type.
  bool isNarrow() const { return gpt2c::isNarrow(x) && w == x; }
  /// A vocabulary: as many tiles as anyone can use.
  bool isWide() const { return n >= 16384; }
  /// Weights that come from memory in a longer time than blocks have before their predecessor ends.
  bool isHeavy() const { return weightBytes() >= int64_t(5) << 20; }
  int64_t weightBytes() const { return storedBytes(w, n * k); }
};

/// Rows that are quantised, and results that their kernels quantise.
struct Int8Rows {
  int64_t group = 0; ///< elements of x that share a scale; 0: a row, -1: all
  int64_t yGroup =
      0; ///< elements of a quantised y that share a scale that the kernel finds; 0: none
  bool residual = false;    ///< a matrix in fp16 is added to a result in fp16 at last
  bool oneCtaPerSm = false; ///< for one wave of blocks
  bool halfBias = false;    ///< a bias in fp16 is added
};

/// The statistics of rows that a kernel leaves beside them, for a norm that later products take out
/// of their sums: that many parts of so many columns each
/// (templates/linear/parts/row_statistics.cuh).
struct RowStatistics {
  int parts = 0, width = 0;
};

/// What a kernel is to do beside the product.
struct LinearFusions {
  NormKind norm = NormKind::None;   ///< of x
  Scalar gain = Scalar::F32;        ///< type of its gain and shift
  bool plainNorm = false;           ///< it has neither, see fold-norms
  bool normSums = true;             ///< sums of the weights, times gain and shift, are known
  int normParts = 0, normWidth = 0; ///< statistics of x that the epilogue folds the norm in with
  bool statistics = false;          ///< leave those of y
  bool best = false;                ///< leave the largest elements of y
  bool sharedRows = false;          ///< x is of rows that ranks have ended, each its share
  bool rowScales = false;           ///< quantised rows: apply their scales, not the epilogue
  ProductEndKind end = ProductEndKind::None; ///< that the epilogue ends with
};

inline const Target &targetOf(const LinearShape &s) { return s.target; }

struct LinearProblem : LinearShape {
  Int8Rows int8 = {};
  LinearFusions fused = {};

  LinearProblem(const LinearShape &s, const LinearFusions &f = {}) : LinearShape(s), fused(f) {}

  using Ability = LinearAbility;
  /// All that a kernel has to do beside the product of its sizes.
  LinearAbilities wants() const;

  /// The epilogue takes neighbouring columns together.
  bool hasPairs() const { return infoOf(fused.end).pairs; }
  bool hasNorm() const { return fused.norm != NormKind::None; }
  LinearProblem plain() const {
    LinearProblem p = *this;
    p.fused = {};
    return p;
  }
  LinearProblem with(const LinearFusions &f) const {
    LinearProblem p = *this;
    p.fused = f;
    return p;
  }
};

} // namespace gpt2c

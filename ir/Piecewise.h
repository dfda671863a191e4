// Functions of one integer that are linear between integers, and the sums of them that dimensions
// are made of.
#pragma once

#include "ir/DimBounds.h"

namespace gpt2c {

/// f(x) = offset + slope * x + the sum of c * max(x - k, 0) over the bends (k, c).
struct Piecewise {
  struct Bend {
    int64_t at = 0, change = 0;
  };
  /// Without a constant term; zero when the function is a constant.
  Dim x;
  int64_t offset = 0, slope = 0;
  llvm::SmallVector<Bend, 4> bends; // by `at`

  /// `d` as a function of a polynomial, none when it is not one or its numbers are too large to
  /// calculate with.
  static std::optional<Piecewise> from(const Dim &d);
  Dim dim() const;

  int64_t at(int64_t value) const;
  /// f(x) - g(x), of functions of the same x.
  Piecewise minus(const Piecewise &g) const;
  /// Least and greatest value where x lies in `domain`.
  DimRange range(const DimRange &domain) const;
};

/// factors * f(x)
struct DimGroup {
  llvm::SmallVector<const Dim::Factor *, 2> factors;
  Piecewise function;
};

/// The parts of `d` that have a max(..., 0), each with what of the other terms belongs to the same
/// x; takes them out of `d`.
llvm::SmallVector<DimGroup, 2> takeGroups(Dim &d);

/// A product that a dimension is a sum of.
struct DimPiece {
  /// min(max(of - from, 0), width)
  struct Clamp {
    Dim of;
    int64_t from = 0;
    std::optional<int64_t> width;
    bool mayBeNegative = true; // of - from; the max does nothing otherwise
  };
  int64_t coefficient = 0;
  llvm::SmallVector<const Dim::Factor *, 2> factors; // symbols and quotients
  std::optional<Clamp> clamp;
};

/// What `d` is the sum of, in the form that is printed and computed at run time.
llvm::SmallVector<DimPiece> piecesOf(const Dim &d);

} // namespace gpt2c

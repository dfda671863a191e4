// Symbolic dimensions: polynomials with integer coefficients over named symbols (`batch`, `seq`,
// `past`) and over functions that are no polynomials, max(d, 0) and floordiv(d, n) of dimensions.
//
// A Dim is a sum of terms c * f1 * f2 * ..., kept in a canonical order, so that equal polynomials
// are equal in representation. Minima and maxima are sums with max(d, 0): max(a, b) = b + max(a -
// b, 0) and min(a, b) = a - max(a - b, 0), so that max(n - 8, 0) + min(n, 8) = n without a rule.
// What depends on one sum of symbols x alone, and is linear between integers, has one form:
// offset + slope*x + the sum of c*max(x - k, 0) over the integers k where it bends.
//
// The text form is what it prints: `past + seq`, `batch*seq - 1`, `min(seq, 8)`,
// `max(seq - 8, 0)`, `floordiv(seq + 1, 2)`.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace gpt2c {

/// Values of symbols at run time.
using SymbolMap = llvm::StringMap<int64_t>;

class DimBounds;

/// A closed interval; its limits are unbounded at the extremes of int64_t.
struct DimRange {
  int64_t lo = std::numeric_limits<int64_t>::min();
  int64_t hi = std::numeric_limits<int64_t>::max();
  bool operator==(const DimRange &) const = default;
};

class Dim {
public:
  /// What a term multiplies. Interned: equal factors are one object.
  struct Factor {
    enum class Kind : uint8_t { Symbol, Positive, FloorDiv };
    Kind kind = Kind::Symbol;
    /// The symbol's name, or `max(..., 0)` or `floordiv(..., by)`.
    llvm::StringRef text;
    const Dim *of = nullptr; // null for a symbol
    int64_t by = 1;          // of FloorDiv: greater than 1
  };
  struct Term {
    int64_t coefficient = 0;
    /// Sorted, symbols first; empty for the constant term. A repeated factor is a power.
    llvm::SmallVector<const Factor *, 2> factors;
    bool operator==(const Term &) const = default;
  };

  Dim() = default; // zero
  Dim(int64_t constant);
  /// `name` is interned; it must be an identifier: [A-Za-z_][A-Za-z0-9_.]*.
  static Dim symbol(llvm::StringRef name);
  static Dim of(const Factor *factor);

  bool isConstant() const;
  /// The value of a constant dimension.
  std::optional<int64_t> constant() const;
  /// The name when the dimension is one plain symbol.
  std::optional<llvm::StringRef> asSymbol() const;
  llvm::ArrayRef<Term> terms() const { return terms_; }
  bool uses(llvm::StringRef symbol) const;
  /// Calls f with each symbol, also within functions; with some more than once.
  void forEachSymbol(llvm::function_ref<void(llvm::StringRef)> f) const;
  /// Whether all factors are symbols.
  bool isPolynomial() const;

  Dim operator+(const Dim &o) const;
  Dim operator-(const Dim &o) const;
  Dim operator*(const Dim &o) const;
  bool operator==(const Dim &o) const { return terms_ == o.terms_; }

  /// The quotient when the division is exact for all symbol values; none otherwise.
  std::optional<Dim> exactDiv(const Dim &o) const;

  // Functions (DimFunctions.cpp), simplified by what `bounds` tells.
  /// max(d, 0)
  static Dim positive(const Dim &d, const DimBounds &bounds);
  static Dim max(const Dim &a, const Dim &b, const DimBounds &bounds);
  static Dim min(const Dim &a, const Dim &b, const DimBounds &bounds);
  /// The quotient by a number of at least 1, rounded down.
  static Dim floorDiv(const Dim &d, int64_t by, const DimBounds &bounds);
  /// `ifNegative` where test < 0, else `otherwise`.
  static Dim select(const Dim &test, const Dim &ifNegative, const Dim &otherwise,
                    const DimBounds &bounds);
  /// f of the values of `args`, which must all be constants or depend on one sum of symbols alone,
  /// linear between integers; none otherwise. f must be linear wherever neither an argument nor a
  /// difference of two crosses 0 or 1.
  static std::optional<Dim> pointwise(llvm::ArrayRef<Dim> args,
                                      llvm::function_ref<int64_t(llvm::ArrayRef<int64_t>)> f,
                                      const DimBounds &bounds);
  /// The same size in the simplest form that `bounds` allows.
  Dim within(const DimBounds &bounds) const;
  /// An interval that contains every value.
  DimRange range(const DimBounds &bounds) const;
  /// How many terms and factors there are, those within functions too: the length of the text.
  size_t complexity() const;

  /// Every occurrence of `symbol` replaced by `by`.
  Dim substitute(llvm::StringRef symbol, const Dim &by) const;

  /// The value under `symbols`; none when a symbol is missing or the value exceeds 64 bits.
  std::optional<int64_t> evaluate(const SymbolMap &symbols) const;

  std::string str() const;
  size_t hash() const;

private:
  friend struct Piecewise;
  static Dim factor(Factor::Kind kind, const Dim &of, int64_t by = 1);
  void normalise();
  llvm::SmallVector<Term, 2> terms_;
};

inline llvm::raw_ostream &operator<<(llvm::raw_ostream &os, const Dim &d) { return os << d.str(); }

using Shape = llvm::SmallVector<Dim, 4>;

/// The product of all dimensions; 1 for a scalar.
Dim elementCount(llvm::ArrayRef<Dim> shape);

/// A process-wide table of immutable strings: names compare and copy as cheap references.
llvm::StringRef intern(llvm::StringRef s);

} // namespace gpt2c

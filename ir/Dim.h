// Symbolic dimensions: polynomials with integer coefficients over named symbols (`batch`, `seq`,
// `past`).
//
// A Dim is a sum of terms c * s1 * s2 * ..., kept in a canonical order, so that equality of values
// is equality of representation. The text form is what it prints: `past + seq`, `2*seq`, `batch*seq
// - 1`.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdint>
#include <optional>
#include <string>

namespace gpt2c {

/// Values of symbols at run time.
using SymbolMap = llvm::StringMap<int64_t>;

class Dim {
public:
  struct Term {
    int64_t coefficient = 0;
    /// Interned names, sorted; empty for the constant term. A repeated name is a power.
    llvm::SmallVector<llvm::StringRef, 2> symbols;
    bool operator==(const Term &) const = default;
  };

  Dim() = default; // zero
  Dim(int64_t constant);
  /// `name` is interned; it must be an identifier: [A-Za-z_][A-Za-z0-9_.]*.
  static Dim symbol(llvm::StringRef name);

  bool isConstant() const;
  /// The value of a constant dimension.
  std::optional<int64_t> constant() const;
  /// The name when the dimension is one plain symbol.
  std::optional<llvm::StringRef> asSymbol() const;
  llvm::ArrayRef<Term> terms() const { return terms_; }
  bool uses(llvm::StringRef symbol) const;

  Dim operator+(const Dim &o) const;
  Dim operator-(const Dim &o) const;
  Dim operator*(const Dim &o) const;
  bool operator==(const Dim &o) const { return terms_ == o.terms_; }

  /// The quotient when the division is exact for all symbol values; none otherwise.
  std::optional<Dim> exactDiv(const Dim &o) const;

  /// Every occurrence of `symbol` replaced by `by`.
  Dim substitute(llvm::StringRef symbol, const Dim &by) const;

  /// The value under `symbols`; none when a symbol is missing.
  std::optional<int64_t> evaluate(const SymbolMap &symbols) const;

  std::string str() const;
  size_t hash() const;

private:
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

// One element of a value as a function of where it stands, of lengths and of what the graph is
// given. Copies, slices, reshapes and the like become arithmetic on indices, so that what is said
// of an element holds for every length and for any number of sequences. Nothing is run.
#pragma once

#include "ir/Function.h"

#include "llvm/ADT/DenseSet.h"

#include <functional>
#include <map>
#include <vector>

namespace gpt2c {

/// A node of the expression of an element. Equal ones of one `Elements` are one object.
struct Element {
  enum Kind : uint8_t {
    Number,    ///< an integer: a polynomial in indices and lengths
    Real,      ///< `real`
    Sum,       ///< of integers
    Times,     ///< operand 0 times `number`
    Quotient,  ///< of operand 0, at least 0, by `number`, rounded down
    Remainder, ///< of the same
    Highest,   ///< of two integers
    Lowest,
    Choice,   ///< operand 0 < operand 1 ? operand 2 : operand 3
    Read,     ///< element of `value` at the operands
    Computed, ///< `op` of the operands, element by element; a product of one summand is that
    Reduced,  ///< `op` of operand 0 for every value of `bound`; a running sum up to operand 1
    Unknown,  ///< anything that `op` makes of all that it reads
  } kind = Number;
  Dim number = {};
  double real = 0;
  const Value *value = nullptr;
  const Op *op = nullptr;
  llvm::SmallVector<const Element *, 4> operands = {};
  llvm::SmallVector<llvm::StringRef, 2> bound = {};
};

/// Makes elements of the values of one function.
class Elements {
public:
  using Ref = const Element *;
  using Indices = llvm::ArrayRef<Ref>;
  /// The element of a value at some indices; null where it is not to be replaced.
  using Definition = std::function<Ref(Indices)>;

  /// An index that counts from 0 and stays below `extent`.
  Dim variable(const Dim &extent);
  /// One for each axis of `v`.
  llvm::SmallVector<Ref, 4> variablesOf(const Value *v);
  /// From here on elements of `v` are those of `definition`.
  void define(const Value *v, Definition definition) { defined_[v] = std::move(definition); }
  /// Elements of `v` are not looked into.
  void stopAt(const Value *v);
  /// Elements of `v` are at least 0.
  void takeAsNonNegative(const Value *v) { nonNegative_.insert(v); }
  /// Casts among floats, which keep or round, are passed over.
  void passCasts() { passesCasts_ = true; }

  /// The element of `v` at `indices`, one for each axis and inside of it.
  Ref at(const Value *v, Indices indices);

  Ref number(const Dim &d);
  Ref real(double v);
  Ref read(const Value *v, Indices indices);
  /// `e` with `by` in the place of `symbol`.
  Ref substitute(Ref e, llvm::StringRef symbol, const Dim &by);

  /// Whether `d` is at least 0 for all indices and lengths.
  bool isNonNegative(const Dim &d) const;
  bool isNonNegative(Ref e) const;
  /// The extent of an index; null where `symbol` is a length.
  const Dim *extentOf(llvm::StringRef symbol) const;

private:
  Ref make(Element e);
  Ref sum(Ref a, Ref b);
  Ref times(Ref a, const Dim &by);
  Ref quotient(Ref a, const Dim &by);
  Ref remainder(Ref a, const Dim &by);
  Ref highest(Ref a, Ref b);
  Ref lowest(Ref a, Ref b);
  Ref choice(Ref a, Ref b, Ref ifLess, Ref otherwise);
  Ref unknown(const Op *op);
  Ref computed(const Op *op, llvm::ArrayRef<Ref> operands);
  Ref remade(Ref e, llvm::ArrayRef<Ref> operands, const Dim &number);

  Ref ofOp(const Op &op, const Value *v, Indices indices);
  Ref ofConstant(const Op &op, Indices indices);
  Ref ofReshape(const Op &op, Indices indices);
  Ref ofConcat(const Op &op, Indices indices);
  Ref ofSlice(const Op &op, Indices indices);
  Ref ofGather(const Op &op, Indices indices);
  Ref ofGatherElements(const Op &op, Indices indices);
  Ref ofGatherND(const Op &op, Indices indices);
  Ref ofTile(const Op &op, Indices indices);
  Ref ofTrilu(const Op &op, Indices indices);
  Ref ofRange(const Op &op, Indices indices);
  Ref ofReduction(const Op &op, Indices indices);
  Ref ofCumSum(const Op &op, Indices indices);
  Ref ofProduct(const Op &op, Indices indices);
  Ref ofElementwise(const Op &op, Indices indices);
  Ref arithmetic(const Op &op, llvm::ArrayRef<Ref> operands);
  Ref comparison(const Op &op, llvm::ArrayRef<Ref> operands);
  Ref logic(const Op &op, llvm::ArrayRef<Ref> operands);
  /// An index that may count from the end of `size`.
  Ref wrapped(Ref index, const Dim &size);
  /// a = whole * by + rest, with as much in the whole as can be said.
  struct Parts {
    Ref whole, rest;
  };
  Parts divide(Ref a, const Dim &by);
  /// At most this; none where that is not known.
  std::optional<Dim> mostOf(Ref e) const;
  bool isBelow(Ref e, const Dim &d) const;
  /// `e` where `fact` is at least 0.
  Ref assuming(Ref e, const Dim &fact);

  struct Before {
    bool operator()(const Element &a, const Element &b) const;
  };
  std::map<Element, std::unique_ptr<Element>, Before> made_;
  std::map<std::pair<const Value *, std::vector<Ref>>, Ref> known_;
  llvm::DenseMap<const Value *, Definition> defined_;
  llvm::DenseSet<const Value *> nonNegative_;
  llvm::SmallVector<Dim, 2> facts_; // what is assumed to be at least 0
  llvm::StringMap<Dim> extents_;
  bool passesCasts_ = false;
  unsigned depth_ = 0;
};

/// The value of an integer element with the given indices and lengths; none where it reads more
/// than constants.
std::optional<int64_t> valueOf(const Element *e, const SymbolMap &symbols);

/// Whether all symbols of `d`, those within minima and quotients too, are allowed.
bool onlyUses(const Dim &d, llvm::function_ref<bool(llvm::StringRef)> allowed);

} // namespace gpt2c

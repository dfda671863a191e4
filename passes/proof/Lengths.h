// What an element depends on, and parts of it that are functions of lengths alone: these are
// evaluated for every length.
#pragma once

#include "passes/Remark.h"
#include "passes/proof/Element.h"

#include "llvm/ADT/SetVector.h"

namespace gpt2c {

/// The lengths that a graph may be called with: each symbol of `queries` and `keys`, of which there
/// are at most two, with 1 <= queries <= keys <= context.
struct Lengths {
  Dim queries, keys;
  int64_t context = 0;
};

/// Values of symbols, one for each of several evaluations.
using LaneMap = llvm::StringMap<std::vector<int64_t>>;

/// `e` for `count` values of its indices and lengths at once, each op in its own type, or in double
/// precision: a tensor [count]. None where it reads more than constants or `reads` gives no values,
/// or where an op cannot be run.
std::optional<Tensor>
evaluateLanes(const Elements &elements, Elements::Ref e, const LaneMap &symbols, int64_t count,
              llvm::function_ref<std::optional<Tensor>(const Element &)> reads = {},
              bool float64 = false);

/// The symbols in `e` that are lengths, those within the extents of indices too.
llvm::SetVector<llvm::StringRef> lengthsIn(const Elements &elements, Elements::Ref e);

/// What may stand in an element.
struct Allowed {
  /// Numbers that are no function of lengths alone.
  std::function<bool(const Dim &)> number;
  /// Elements of what the graph is given.
  std::function<bool(const Element &)> read;
  /// Reductions, by what they mean there; absent: none but those of lengths alone.
  std::function<bool(const Element &)> reduced = {};
};

/// Finds what in elements a form has no place for.
class DependenceProof {
public:
  DependenceProof(Elements &elements, Lengths lengths, Allowed allowed)
      : elements_(elements), lengths_(std::move(lengths)), allowed_(std::move(allowed)) {}

  /// The first part of `e` that is not allowed, in words that go on "its mask ": none where all of
  /// it is. A part that is made of lengths and constants alone is allowed where it is the same for
  /// every length.
  std::optional<Obstacle> foreign(Elements::Ref e);

private:
  bool isOfLengths(Elements::Ref e);
  std::optional<Obstacle> varies(Elements::Ref e, const Op *reader);
  std::optional<Obstacle> walk(Elements::Ref e, const Op *reader);

  Elements &elements_;
  Lengths lengths_;
  Allowed allowed_;
  std::map<Elements::Ref, bool> seen_, ofLengths_;
};

} // namespace gpt2c

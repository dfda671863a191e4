// Rewrite rules as data, and the one engine that applies them.
//
// A rule has a name, a formula, a pattern, a guard and a replacement. The engine matches the
// pattern at an op (its root) in each way the guard accepts until one does, and lets the
// replacement build new ops in front of the root; only when the replacement has succeeded and its
// type equals the root's are the root's uses redirected. Otherwise the new ops are removed again,
// so the graph is never half-edited.
//
// Termination: a rule set states a measure that each of its rules lowers; the engine also stops
// with an error that names the last rule after far more rewrites than the function has ops.
#pragma once

#include "ir/Builder.h"
#include "passes/Pass.h"

namespace gpt2c {

/// What a pattern matched: captured values and ops by name, and all ops inside.
class Match {
public:
  Op *root() const { return ops.front(); }
  Value *value(llvm::StringRef name) const { return values.lookup(name); }
  Op *op(llvm::StringRef name) const { return value(name)->def(); }
  /// The captured scalar constant as a number.
  double scalar(llvm::StringRef name) const;

  llvm::StringMap<Value *> values;
  llvm::SmallVector<Op *, 8> ops;
};

class Pattern {
public:
  /// Matches any value (null never), captured under `name` when given. A name used twice must match
  /// one value.
  static Pattern any(llvm::StringRef name = "");
  /// The function's argument of this name, captured under it.
  static Pattern argument(llvm::StringRef name);
  /// A constant with one element, of any rank.
  static Pattern scalar(llvm::StringRef name);
  /// A one-element constant of exactly this value.
  static Pattern number(double value);
  /// Any constant.
  static Pattern constant(llvm::StringRef name);
  /// An op with one result. Operands beyond those listed must be absent. Commutative ops match in
  /// both orders.
  static Pattern op(OpCode code, std::vector<Pattern> operands, llvm::StringRef name = "");
  /// The first alternative with which everything matches.
  static Pattern oneOf(std::vector<Pattern> alternatives);

  using Accept = llvm::function_ref<bool(const Match &)>;
  /// The first way to match `v` that the guard accepts: every order of commutative operands and
  /// every alternative is tried, also those inside. `m` is set only when true is returned.
  bool match(Value *v, Match &m, Accept guard = nullptr) const;
  /// The op kinds a root may have; empty when any.
  llvm::SmallVector<OpCode, 2> rootCodes() const;

private:
  bool matchFrom(Value *v, const Match &m, Accept accept) const;
  bool matchChildren(Op *op, bool swapped, unsigned i, const Match &m, Accept accept) const;

  enum Kind : uint8_t { Any, Argument, Scalar, Number, Constant, OpKind, OneOf } kind_ = Any;
  OpCode code_ = OpCode::Constant;
  double number_ = 0;
  std::string name_;
  std::vector<Pattern> children_;
};

struct Rule {
  llvm::StringRef name;
  llvm::StringRef formula;
  Pattern pattern;
  std::function<bool(const Match &)> guard; // null: always
  std::function<llvm::Expected<Value *>(const Match &, Builder &)> replace;
};

/// Applies the rules until none matches. Returns the number of rewrites.
llvm::Expected<unsigned> applyRules(Function &f, llvm::ArrayRef<Rule> rules);

/// Redirects all uses of `root` to `by` and gives the ops in `created` the locations of `matched`.
void adoptLocations(llvm::ArrayRef<Op *> created, llvm::ArrayRef<Op *> matched);

/// The value of a one-element constant; none for anything else.
std::optional<double> scalarConstant(const Value *v);
/// The defining constant op; null for anything else.
Op *constantOp(const Value *v);

/// Equal attributes of two ops of one kind; one that is absent equals its default.
bool sameAttrs(const Op &a, const Op &b);

} // namespace gpt2c

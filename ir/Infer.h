// What an op's `infer` sees: operand types and contents in, result types and contents out.
#pragma once

#include "ir/DimBounds.h"
#include "ir/Function.h"

namespace gpt2c {

class InferContext {
public:
  explicit InferContext(Op &op) : op_(op) {}
  Op &op() const { return op_; }
  unsigned numOperands() const { return op_.numOperands(); }
  bool has(unsigned operand) const { return op_.operand(operand) != nullptr; }
  const Type &type(unsigned operand) const { return op_.operand(operand)->type; }
  DType dtype(unsigned operand) const { return type(operand).dtype; }
  llvm::ArrayRef<Dim> shape(unsigned operand) const { return type(operand).shape; }
  unsigned rank(unsigned operand) const { return type(operand).rank(); }
  /// Symbolic elements of an integer operand; null when unknown.
  const Dims *content(unsigned operand) const;
  /// A Dims attribute of constants; an error when there is a symbol in it.
  llvm::Expected<std::vector<int64_t>> ints(llvm::StringRef attr) const;
  /// Elements of an integer operand when all are known constants.
  std::optional<std::vector<int64_t>> constants(unsigned operand) const;

  /// What is known of the function's symbols.
  const DimBounds &bounds() const;

  /// Dimensions become as simple as the bounds allow; one that is too long to calculate with is
  /// unknown.
  void setResult(unsigned i, DType dtype, Shape shape);
  void setResult(DType dtype, Shape shape) { setResult(0, dtype, std::move(shape)); }
  /// Elements of an integer result, when known, made as simple as dimensions are; ignored for
  /// results of more than 256 elements.
  void setContent(Dims content, unsigned i = 0);
  /// A dimension about which nothing is known: a symbol of its own, stable for this op, result and
  /// axis.
  Dim unknown(unsigned axis, unsigned result = 0) const;

  /// An error that names the op, its location and what is wrong.
  llvm::Error error(const llvm::Twine &message) const;
  /// Normalises a possibly negative axis.
  llvm::Expected<unsigned> axis(int64_t axis, unsigned rank) const;
  /// Numpy broadcasting. Of two different symbolic dimensions the result is what it is wherever
  /// they are equal or one is 1, and `inferredEqualities` collects the pair.
  llvm::Expected<Shape> broadcast(llvm::ArrayRef<Dim> a, llvm::ArrayRef<Dim> b) const;
  /// Two dimensions that must be equal in a call that can run; the simpler is kept (a symbol that
  /// stands alone loses against a sum: exporters name `total` what is `past + seq`), and
  /// `inferredEqualities` collects the pair.
  llvm::Expected<Dim> unify(const Dim &a, const Dim &b) const;

private:
  Dim taken(const Dim &a, const Dim &b) const;
  std::optional<Dim> simplified(const Dim &d) const;
  Op &op_;
  mutable std::optional<DimBounds> bounds_;
};

/// Pairs of dimensions that inference had to assume equal, collected while it runs; null: not
/// collected.
extern thread_local std::vector<std::pair<Dim, Dim>> *inferredEqualities;

/// Infers one op's results.
llvm::Error inferOp(Op &op);

/// Common inference functions.
llvm::Error inferSameAsOperand(InferContext &c);   // type of operand 0
llvm::Error inferBroadcast(InferContext &c);       // broadcast of all operands, dtype of operand 0
llvm::Error inferBroadcastToBool(InferContext &c); // the same, Bool

} // namespace gpt2c

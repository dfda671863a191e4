// Integer expressions of a plan: evaluation, proven bounds, text, and construction.
//
// An expression is reverse Polish code over a function's symbols (see plan.fbs). All functions here
// accept arbitrary, unverified code: a malformed expression is an error, never undefined behaviour.
#pragma once

#include "plan_generated.h"
#include "runtime/Status.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace gpt2c::rt {

/// Operation codes of Expr.code; Push and Symbol use the second entry of the pair, the others
/// require it to be zero.
enum class ExprOp : int64_t { Push = 0, Symbol, Add, Sub, Mul, CeilDiv, Min, Max };

/// Largest number of values on the evaluation stack.
inline constexpr int kMaxExprDepth = 32;

/// Value of `expr` at `symbols`. Overflow, division by zero and malformed code are errors
/// (Code::Corrupt).
Result<int64_t> evalExpr(const plan::ExprT &expr, std::span<const int64_t> symbols);

/// Closed interval.
struct Range {
  int64_t lo = 0;
  int64_t hi = 0;
};

/// An interval that contains the value of `expr` for every assignment of the symbols within
/// `symbols`. Success proves that evalExpr succeeds for each of them: no intermediate value
/// overflows and no divisor is below one.
Result<Range> exprRange(const plan::ExprT &expr, std::span<const Range> symbols);

/// Infix text with the symbols' names: "ceildiv(batch * seq, 128)".
Result<std::string> printExpr(const plan::ExprT &expr, std::span<const std::string> symbols);

plan::ExprT constantExpr(int64_t value);
plan::ExprT symbolExpr(int index);
/// Combines two expressions; folds constants and the neutral elements of Add, Sub, Mul and CeilDiv.
plan::ExprT combineExpr(ExprOp op, const plan::ExprT &lhs, const plan::ExprT &rhs);

/// Expressions as an algebra: what builds values from operations makes code with it.
/// `indexOf` numbers the symbols of a function.
struct ExprAlgebra {
  std::function<int(std::string_view)> indexOf;

  plan::ExprT constant(int64_t value) const { return constantExpr(value); }
  plan::ExprT symbol(std::string_view name) const { return symbolExpr(indexOf(name)); }
  plan::ExprT add(const plan::ExprT &a, const plan::ExprT &b) const {
    return combineExpr(ExprOp::Add, a, b);
  }
  plan::ExprT multiply(const plan::ExprT &a, const plan::ExprT &b) const {
    return combineExpr(ExprOp::Mul, a, b);
  }
  plan::ExprT min(const plan::ExprT &a, const plan::ExprT &b) const {
    return combineExpr(ExprOp::Min, a, b);
  }
  plan::ExprT max(const plan::ExprT &a, const plan::ExprT &b) const {
    return combineExpr(ExprOp::Max, a, b);
  }
  /// floor(a / b) = ceil((a - b + 1) / b)
  plan::ExprT floorDiv(const plan::ExprT &a, const plan::ExprT &b) const {
    const plan::ExprT least = combineExpr(ExprOp::Sub, constantExpr(1), b);
    return combineExpr(ExprOp::CeilDiv, add(a, least), b);
  }
};

} // namespace gpt2c::rt

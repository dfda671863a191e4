#include "runtime/plan/Expr.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace gpt2c::rt {
namespace {

Status malformed(std::string what) {
  return Status(Code::Corrupt, "malformed expression: " + std::move(what));
}

bool isKnown(int64_t op) { return op >= int64_t(ExprOp::Push) && op <= int64_t(ExprOp::Max); }

/// Runs `code` over a domain: Domain::Value with constant(), symbol() and apply(). A domain's
/// functions return nothing to signal that the operation has no value there, and why() then says
/// the reason.
template <typename Domain>
Result<typename Domain::Value> interpret(const std::vector<int64_t> &code, Domain &domain,
                                         size_t symbolCount) {
  using Value = typename Domain::Value;
  std::array<Value, kMaxExprDepth> stack;
  size_t depth = 0;
  if (code.empty() || code.size() % 2 != 0)
    return malformed(std::to_string(code.size()) + " code words");
  for (size_t i = 0; i < code.size(); i += 2) {
    int64_t op = code[i], operand = code[i + 1];
    if (!isKnown(op))
      return malformed("unknown operation " + std::to_string(op));
    std::optional<Value> value;
    if (op == int64_t(ExprOp::Push)) {
      value = domain.constant(operand);
    } else if (op == int64_t(ExprOp::Symbol)) {
      if (operand < 0 || uint64_t(operand) >= symbolCount)
        return malformed("symbol " + std::to_string(operand) + " of " +
                         std::to_string(symbolCount));
      value = domain.symbol(size_t(operand));
    } else {
      if (operand != 0)
        return malformed("operand " + std::to_string(operand) + " on a binary operation");
      if (depth < 2)
        return malformed("binary operation on " + std::to_string(depth) + " values");
      depth -= 2;
      value = domain.apply(ExprOp(op), stack[depth], stack[depth + 1]);
    }
    if (!value)
      return Status(Code::Corrupt, domain.why());
    if (depth == stack.size())
      return malformed("more than " + std::to_string(kMaxExprDepth) + " values on the stack");
    stack[depth++] = std::move(*value);
  }
  if (depth != 1)
    return malformed(std::to_string(depth) + " values left on the stack");
  return std::move(stack[0]);
}

/// ceil(a / b) for b != 0; nothing on overflow.
std::optional<int64_t> ceilDiv(int64_t a, int64_t b) {
  if (a == INT64_MIN && b == -1)
    return std::nullopt;
  int64_t quotient = a / b;
  bool roundUp = a % b != 0 && (a < 0) == (b < 0);
  return quotient + (roundUp ? 1 : 0);
}

std::optional<int64_t> applyChecked(ExprOp op, int64_t a, int64_t b) {
  int64_t out = 0;
  switch (op) {
  case ExprOp::Add:
    return __builtin_add_overflow(a, b, &out) ? std::nullopt : std::optional(out);
  case ExprOp::Sub:
    return __builtin_sub_overflow(a, b, &out) ? std::nullopt : std::optional(out);
  case ExprOp::Mul:
    return __builtin_mul_overflow(a, b, &out) ? std::nullopt : std::optional(out);
  case ExprOp::CeilDiv:
    return b == 0 ? std::nullopt : ceilDiv(a, b);
  case ExprOp::Min:
    return std::min(a, b);
  case ExprOp::Max:
    return std::max(a, b);
  case ExprOp::Push:
  case ExprOp::Symbol:
    break;
  }
  return std::nullopt;
}

struct Integers {
  using Value = int64_t;
  std::span<const int64_t> symbols;
  bool zeroDivisor = false;

  std::optional<Value> constant(int64_t c) { return c; }
  std::optional<Value> symbol(size_t i) { return symbols[i]; }
  std::optional<Value> apply(ExprOp op, Value a, Value b) {
    zeroDivisor = op == ExprOp::CeilDiv && b == 0;
    return applyChecked(op, a, b);
  }
  std::string why() const {
    return zeroDivisor ? "expression divides by zero" : "expression exceeds 64 bits";
  }
};

struct Intervals {
  using Value = Range;
  std::span<const Range> symbols;
  bool badDivisor = false;

  std::optional<Value> constant(int64_t c) { return Range{c, c}; }
  std::optional<Value> symbol(size_t i) { return symbols[i]; }

  /// Every operation is monotonic in each operand (CeilDiv for divisors of one sign), so the
  /// extremes lie at corners.
  std::optional<Value> apply(ExprOp op, Range a, Range b) {
    badDivisor = op == ExprOp::CeilDiv && b.lo < 1;
    if (badDivisor)
      return std::nullopt;
    std::optional<Range> out;
    for (int64_t x : {a.lo, a.hi})
      for (int64_t y : {b.lo, b.hi}) {
        std::optional<int64_t> corner = applyChecked(op, x, y);
        if (!corner)
          return std::nullopt;
        out = out ? Range{std::min(out->lo, *corner), std::max(out->hi, *corner)}
                  : Range{*corner, *corner};
      }
    return out;
  }
  std::string why() const {
    return badDivisor ? "expression may divide by a number below one"
                      : "expression may exceed 64 bits within the symbols' bounds";
  }
};

struct Infix {
  /// Precedence of the outermost operation: 1 sum, 2 product, 3 atom.
  struct Value {
    std::string text;
    int precedence = 3;
  };
  std::span<const std::string> symbols;

  static std::string wrap(const Value &value, int atLeast) {
    return value.precedence >= atLeast ? value.text : "(" + value.text + ")";
  }
  std::optional<Value> constant(int64_t c) { return Value{std::to_string(c), c < 0 ? 1 : 3}; }
  std::optional<Value> symbol(size_t i) { return Value{symbols[i], 3}; }
  std::optional<Value> apply(ExprOp op, const Value &a, const Value &b) {
    auto call = [&](const char *name) {
      return Value{std::string(name) + "(" + a.text + ", " + b.text + ")", 3};
    };
    switch (op) {
    case ExprOp::Add:
      return Value{a.text + " + " + b.text, 1};
    case ExprOp::Sub:
      return Value{a.text + " - " + wrap(b, 2), 1};
    case ExprOp::Mul:
      return Value{wrap(a, 2) + " * " + wrap(b, 2), 2};
    case ExprOp::CeilDiv:
      return call("ceildiv");
    case ExprOp::Min:
      return call("min");
    case ExprOp::Max:
      return call("max");
    case ExprOp::Push:
    case ExprOp::Symbol:
      break;
    }
    return std::nullopt;
  }
  std::string why() const { return "malformed expression"; }
};

std::optional<int64_t> constantOf(const plan::ExprT &expr) {
  if (expr.code.size() == 2 && expr.code[0] == int64_t(ExprOp::Push))
    return expr.code[1];
  return std::nullopt;
}

} // namespace

Result<int64_t> evalExpr(const plan::ExprT &expr, std::span<const int64_t> symbols) {
  Integers domain{symbols};
  return interpret(expr.code, domain, symbols.size());
}

Result<Range> exprRange(const plan::ExprT &expr, std::span<const Range> symbols) {
  Intervals domain{symbols};
  return interpret(expr.code, domain, symbols.size());
}

Result<std::string> printExpr(const plan::ExprT &expr, std::span<const std::string> symbols) {
  Infix domain{symbols};
  Result<Infix::Value> value = interpret(expr.code, domain, symbols.size());
  if (!value)
    return value.status();
  return std::move(value->text);
}

plan::ExprT constantExpr(int64_t value) {
  plan::ExprT expr;
  expr.code = {int64_t(ExprOp::Push), value};
  return expr;
}

plan::ExprT symbolExpr(int index) {
  plan::ExprT expr;
  expr.code = {int64_t(ExprOp::Symbol), index};
  return expr;
}

plan::ExprT combineExpr(ExprOp op, const plan::ExprT &lhs, const plan::ExprT &rhs) {
  assert(op != ExprOp::Push && op != ExprOp::Symbol && "a binary operation is needed");
  std::optional<int64_t> a = constantOf(lhs), b = constantOf(rhs);
  if (a && b)
    if (std::optional<int64_t> folded = applyChecked(op, *a, *b))
      return constantExpr(*folded);
  if ((op == ExprOp::Add && a == 0) || (op == ExprOp::Mul && a == 1))
    return rhs;
  if (((op == ExprOp::Add || op == ExprOp::Sub) && b == 0) ||
      ((op == ExprOp::Mul || op == ExprOp::CeilDiv) && b == 1))
    return lhs;
  plan::ExprT expr;
  expr.code = lhs.code;
  expr.code.insert(expr.code.end(), rhs.code.begin(), rhs.code.end());
  expr.code.insert(expr.code.end(), {int64_t(op), 0});
  return expr;
}

} // namespace gpt2c::rt

// The grid of a launch, written as expressions over a function's symbols.
#pragma once

#include "runtime/plan/Expr.h"

#include <array>

namespace gpt2c {

/// Blocks along x, y and z. Beside its configuration each kernel has a `gridOf`, for plans and
/// tests alike: sizes that a plan knows are constants (rt::constantExpr).
using Grid = std::array<plan::ExprT, 3>;

inline plan::ExprT minExpr(const plan::ExprT &a, const plan::ExprT &b) {
  return rt::combineExpr(rt::ExprOp::Min, a, b);
}
inline plan::ExprT maxExpr(const plan::ExprT &a, const plan::ExprT &b) {
  return rt::combineExpr(rt::ExprOp::Max, a, b);
}
inline plan::ExprT sumExpr(const plan::ExprT &a, const plan::ExprT &b) {
  return rt::combineExpr(rt::ExprOp::Add, a, b);
}
inline plan::ExprT productExpr(const plan::ExprT &a, const plan::ExprT &b) {
  return rt::combineExpr(rt::ExprOp::Mul, a, b);
}
inline plan::ExprT ceilDivExpr(const plan::ExprT &a, int64_t by) {
  return rt::combineExpr(rt::ExprOp::CeilDiv, a, rt::constantExpr(by));
}

inline Grid blocks(const plan::ExprT &x, const plan::ExprT &y, int64_t z = 1) {
  return {x, y, rt::constantExpr(z)};
}
inline Grid blocks(const plan::ExprT &x, int64_t y = 1, int64_t z = 1) {
  return blocks(x, rt::constantExpr(y), z);
}
inline Grid blocks(int64_t x, int64_t y = 1, int64_t z = 1) {
  return blocks(rt::constantExpr(x), y, z);
}

} // namespace gpt2c

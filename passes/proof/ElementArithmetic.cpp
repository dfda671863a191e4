// What elementwise ops make of elements: arithmetic on lengths is done, of other values noted.
#include "passes/proof/Element.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace gpt2c {

/// Whether results of arithmetic on lengths stay far from where the type wraps.
static bool isTameResult(const Dim &d, DType dtype) {
  const int64_t most = dtype == DType::I64 ? int64_t(1) << 30 : 1 << 10;
  return llvm::all_of(d.terms(), [&](const Dim::Term &t) {
    return std::abs(t.coefficient) <= most && (dtype == DType::I64 || t.factors.size() <= 1);
  });
}

Elements::Ref Elements::arithmetic(const Op &op, llvm::ArrayRef<Ref> of) {
  const DType dtype = op.result()->type.dtype;
  if (dtype != DType::I64 && dtype != DType::I32)
    return computed(&op, of);
  auto isNumber = [&](unsigned i) { return of[i]->kind == Element::Number; };
  auto tame = [&](Ref e) {
    return e->kind != Element::Number || isTameResult(e->number, dtype) ? e : computed(&op, of);
  };
  switch (op.code()) {
  case OpCode::Add:
    return tame(sum(of[0], of[1]));
  case OpCode::Sub:
    return tame(sum(of[0], times(of[1], Dim(-1))));
  case OpCode::Neg:
    return tame(times(of[0], Dim(-1)));
  case OpCode::Mul:
    if (isNumber(0) || isNumber(1))
      return tame(isNumber(1) ? times(of[0], of[1]->number) : times(of[1], of[0]->number));
    break;
  case OpCode::Max:
    if (of.size() == 2)
      return highest(of[0], of[1]);
    break;
  case OpCode::Min:
    if (of.size() == 2)
      return lowest(of[0], of[1]);
    break;
  case OpCode::Div:
  case OpCode::Mod:
    if (isNumber(0) && isNumber(1) && isNonNegative(of[0]->number) &&
        isNonNegative(of[1]->number - Dim(1)))
      return op.is(OpCode::Div) ? quotient(of[0], of[1]->number) : remainder(of[0], of[1]->number);
    break;
  default:
    break;
  }
  return computed(&op, of);
}

/// 1 or 0 where that is so for all indices and lengths.
Elements::Ref Elements::comparison(const Op &op, llvm::ArrayRef<Ref> of) {
  if (of[0]->kind != Element::Number || of[1]->kind != Element::Number)
    return computed(&op, of);
  const Dim &a = of[0]->number, &b = of[1]->number;
  const DType dtype = op.operand(0)->type.dtype;
  // By the distance alone, in which lengths may cancel.
  auto open = [&] {
    const bool holds = dtype == DType::I64 || dtype == DType::I32;
    return holds ? computed(&op, {number(a - b), number(0)}) : computed(&op, of);
  };
  auto decided = [&](const Dim &yes, const Dim &no) {
    if (isNonNegative(yes) || isNonNegative(no))
      return number(isNonNegative(yes));
    return open();
  };
  switch (op.code()) {
  case OpCode::Less:
    return decided(b - a - Dim(1), a - b);
  case OpCode::LessEqual:
    return decided(b - a, a - b - Dim(1));
  case OpCode::Greater:
    return decided(a - b - Dim(1), b - a);
  case OpCode::GreaterEqual:
    return decided(a - b, b - a - Dim(1));
  default: // Equal
    if (a == b)
      return number(1);
    if (isNonNegative(a - b - Dim(1)) || isNonNegative(b - a - Dim(1)))
      return number(0);
    return open();
  }
}

Elements::Ref Elements::logic(const Op &op, llvm::ArrayRef<Ref> of) {
  auto isConstant = [](Ref e, int64_t c) {
    return e->kind == Element::Number && e->number == Dim(c);
  };
  switch (op.code()) {
  case OpCode::Not:
    for (int64_t c : {0, 1})
      if (isConstant(of[0], c))
        return number(1 - c);
    break;
  case OpCode::And:
  case OpCode::Or: {
    const int64_t settles = op.is(OpCode::Or);
    for (unsigned i : {0, 1}) {
      if (isConstant(of[i], settles))
        return of[i];
      if (isConstant(of[i], 1 - settles))
        return of[1 - i];
    }
    break;
  }
  default:
    break;
  }
  return computed(&op, of);
}

Elements::Ref Elements::ofElementwise(const Op &op, llvm::ArrayRef<Ref> of) {
  switch (op.code()) {
  case OpCode::Add:
  case OpCode::Sub:
  case OpCode::Neg:
  case OpCode::Mul:
  case OpCode::Div:
  case OpCode::Mod:
  case OpCode::Max:
  case OpCode::Min:
    return arithmetic(op, of);
  case OpCode::Equal:
  case OpCode::Less:
  case OpCode::LessEqual:
  case OpCode::Greater:
  case OpCode::GreaterEqual:
    return isFloat(op.operand(0)->type.dtype) ? computed(&op, of) : comparison(op, of);
  case OpCode::Not:
  case OpCode::And:
  case OpCode::Or:
    return logic(op, of);
  case OpCode::Where: {
    auto c = of[0]->kind == Element::Number ? of[0]->number.constant() : std::nullopt;
    if (c)
      return of[*c ? 1 : 2];
    return of[1] == of[2] ? of[1] : computed(&op, of);
  }
  case OpCode::Cast: {
    const DType from = op.operand(0)->type.dtype, to = op.result()->type.dtype;
    const bool integers = !isFloat(from) && (to == DType::I32 || to == DType::I64);
    if (integers || from == to || (passesCasts_ && isFloat(from) && isFloat(to)))
      return of[0];
    // One number of a mask in floating point, say.
    if ((to == DType::I32 || to == DType::I64) && of[0]->kind == Element::Number)
      if (auto c = of[0]->number.constant(); c && std::abs(*c) <= 1 << 11)
        return of[0];
    if (to == DType::Bool && of[0]->kind == Element::Number)
      if (auto c = of[0]->number.constant())
        return number(*c != 0);
    return computed(&op, of);
  }
  default:
    return computed(&op, of);
  }
}

} // namespace gpt2c

#include "passes/proof/bounds/ChainForm.h"

#include "passes/Rewrite.h"
#include "passes/quantize/Precision.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// True when every value of `from` is one of `to`.
static bool holdsEvery(DType to, DType from) {
  if (to == from)
    return true;
  return to == DType::F64 ? isFloat(from) : to == DType::F32 && isNarrow(from);
}

bool isAlgebraic(const Op &op, DType dtype) {
  switch (op.code()) {
  case OpCode::Add:
  case OpCode::Sub:
  case OpCode::Mul:
  case OpCode::Div:
  case OpCode::Neg:
  case OpCode::Reciprocal:
  case OpCode::Sqrt:
    return true;
  case OpCode::Pow:
    return scalarConstant(op.operand(ops::Pow::B)).has_value();
  case OpCode::Cast:
    return isFloat(op.operand(0)->type.dtype) && holdsEvery(op.result()->type.dtype, dtype);
  default:
    return false;
  }
}

const Op *foreignOp(llvm::ArrayRef<Op *> chain, DType dtype, llvm::ArrayRef<OpCode> others) {
  for (const Op *op : chain)
    if (!op->is(OpCode::Constant) && !isAlgebraic(*op, dtype) &&
        !llvm::is_contained(others, op->code()))
      return op;
  return nullptr;
}

} // namespace gpt2c

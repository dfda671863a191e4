#include "ir/Decisions.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

static bool isFloatValue(const Value *v) { return v && isFloat(v->type.dtype); }

bool isDecision(const Op &op) {
  if (op.numResults() != 1 || !llvm::any_of(op.operands(), isFloatValue))
    return false;
  switch (op.code()) {
  case OpCode::Floor:
  case OpCode::Ceil:
  case OpCode::Sign:
  case OpCode::Mod:
    return true;
  case OpCode::Shape: // reads no element
  case OpCode::AffineQuantize:
  case OpCode::Quantize:
    return false;
  default:
    return !isFloatValue(op.result());
  }
}

/// Ops that mix no rows of weights into what they read.
static bool isArithmetic(const Op &op) {
  switch (op.code()) {
  case OpCode::Constant:
  case OpCode::Range:
  case OpCode::ConstantOfShape:
  case OpCode::OneHot:
  case OpCode::CumSum:
    return true;
  default:
    return op.info().has(Elementwise) || op.info().has(DataMovement) || op.info().has(Reduction);
  }
}

/// Adds the ops behind one decision, unless it reads data.
static void add(const Op &decision, llvm::function_ref<bool(const Value *)> isGiven, OpSet &to) {
  OpSet seen;
  if (isFloatValue(decision.result()))
    seen.insert(&decision);
  llvm::SmallVector<const Value *> work(decision.operands());
  while (!work.empty()) {
    const Value *v = work.pop_back_val();
    if (!isFloatValue(v))
      continue;
    const Op *op = v->def();
    if (!op || !isArithmetic(*op) || (isGiven && isGiven(v)))
      return;
    if (seen.insert(op).second)
      work.append(op->operands().begin(), op->operands().end());
  }
  to.insert(seen.begin(), seen.end());
}

OpSet decidingOps(llvm::ArrayRef<const Op *> ops, llvm::function_ref<bool(const Value *)> isGiven) {
  OpSet out;
  for (const Op *op : ops)
    if (isDecision(*op))
      add(*op, isGiven, out);
  return out;
}

OpSet decidingOps(const Function &f) {
  llvm::SmallVector<const Op *> ops;
  for (auto &op : f.ops())
    ops.push_back(op.get());
  return decidingOps(ops);
}

} // namespace gpt2c

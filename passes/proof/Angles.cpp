#include "passes/proof/Angles.h"

#include "ir/Builder.h"
#include "passes/proof/masks/Probe.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

static bool isFloatValue(const Value *v) { return isFloat(v->type.dtype); }

OpSet angleOps(const Function &f) {
  OpSet angles;
  for (auto &op : f.ops()) {
    if (!op->is(OpCode::Cos) && !op->is(OpCode::Sin))
      continue;
    BackwardSlice s = backwardSlice(op->result(), [](Value *v) { return !isFloatValue(v); });
    if (llvm::none_of(s.leaves, isFloatValue))
      angles.insert(s.ops.begin(), s.ops.end());
  }
  return angles;
}

bool decidesBy(const Op &op, const OpSet &ops) {
  return isDecision(op) && llvm::all_of(op.operands(), [&](const Value *v) {
           return !v || !isFloatValue(v) || ops.contains(v->def());
         });
}

llvm::Expected<OpSet> separate(Function &f, OpSet ops) {
  llvm::SmallVector<Op *> inOrder;
  for (auto &op : f.ops())
    if (ops.contains(op.get()) && op->numResults() == 1)
      inOrder.push_back(op.get());
  for (Op *op : inOrder) {
    llvm::SmallVector<Use> inside, outside;
    for (const Use &u : op->result()->uses())
      (ops.contains(u.op) || decidesBy(*u.op, ops) ? inside : outside).push_back(u);
    if (outside.empty())
      continue;
    Builder b(f, f.next(op));
    b.setLocations(op->locations);
    if (op->is(OpCode::Constant)) {
      Value *copy = b.constant(op->constant);
      copy->name = op->result()->name;
      ops.erase(op);
      ops.insert(copy->def());
      for (const Use &u : inside)
        u.op->setOperand(u.operand, copy);
      continue;
    }
    auto cast = b.value(OpCode::Cast, {op->result()}, {{"to", op->result()->type.dtype}});
    if (!cast)
      return cast.takeError();
    for (const Use &u : outside)
      u.op->setOperand(u.operand, *cast);
  }
  return ops;
}

} // namespace gpt2c

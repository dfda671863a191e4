#include "passes/proof/Angles.h"

#include "ir/Builder.h"
#include "passes/proof/Probe.h"

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

llvm::Expected<OpSet> separateAngles(Function &f) {
  OpSet angles = angleOps(f);
  llvm::SmallVector<Op *> ops;
  for (auto &op : f.ops())
    if (angles.contains(op.get()) && op->numResults() == 1)
      ops.push_back(op.get());
  for (Op *op : ops) {
    llvm::SmallVector<Use> inside, outside;
    for (const Use &u : op->result()->uses())
      (angles.contains(u.op) ? inside : outside).push_back(u);
    if (outside.empty())
      continue;
    Builder b(f, f.next(op));
    b.setLocations(op->locations);
    if (op->is(OpCode::Constant)) {
      Value *copy = b.constant(op->constant);
      copy->name = op->result()->name;
      angles.erase(op);
      angles.insert(copy->def());
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
  return angles;
}

} // namespace gpt2c

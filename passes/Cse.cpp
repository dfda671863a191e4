// cse: an op that repeats an earlier one (same kind, attributes, types and operands, in either
// order where they commute) takes its results; constants of equal content become one op, which is
// how a tied head finds the embedding's table again.
#include "passes/Rewrite.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

#include <functional>

namespace gpt2c {

/// The operands; the first two in one order whichever way a commutative op has them.
static llvm::SmallVector<Value *> orderedOperands(const Op &op) {
  llvm::SmallVector<Value *> operands(op.operands());
  if (op.info().has(Commutative) && operands.size() >= 2 && std::less<>()(operands[1], operands[0]))
    std::swap(operands[0], operands[1]);
  return operands;
}

static size_t hashOp(const Op &op) {
  llvm::hash_code h = llvm::hash_combine(static_cast<unsigned>(op.code()), op.numOperands());
  for (Value *v : orderedOperands(op))
    h = llvm::hash_combine(h, v);
  if (op.is(OpCode::Constant) && op.constant.valid())
    // The beginning tells weights apart; ops of equal hash are compared whole.
    h = llvm::hash_combine(h, llvm::hash_value(op.constant.byteArray().take_front(4096)));
  return h;
}

static bool equal(const Op &a, const Op &b) {
  if (a.code() != b.code() || orderedOperands(a) != orderedOperands(b) || !sameAttrs(a, b) ||
      a.numResults() != b.numResults())
    return false;
  for (unsigned i = 0; i < a.numResults(); ++i)
    if (a.result(i)->type != b.result(i)->type)
      return false;
  if (!a.is(OpCode::Constant))
    return true;
  return a.constant.valid() && b.constant.valid() &&
         a.constant.byteArray() == b.constant.byteArray();
}

llvm::Error eliminateCommonSubexpressions(PassContext &ctx) {
  for (auto &f : ctx.module().functions) {
    llvm::DenseMap<size_t, llvm::SmallVector<Op *, 1>> seen;
    for (auto &op : f->ops()) {
      if (op->info().has(InPlace) || op->info().has(Terminator))
        continue;
      auto &candidates = seen[hashOp(*op) >> 1]; // clear of the map's reserved keys
      auto it = llvm::find_if(candidates, [&](Op *c) { return equal(*c, *op); });
      if (it == candidates.end()) {
        candidates.push_back(op.get());
        continue;
      }
      (*it)->addLocations(op->locations);
      for (unsigned i = 0; i < op->numResults(); ++i)
        op->result(i)->replaceAllUsesWith((*it)->result(i));
    }
    f->eraseDeadOps();
  }
  return llvm::Error::success();
}

} // namespace gpt2c

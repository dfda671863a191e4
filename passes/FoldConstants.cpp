// fold-constants: an op whose operands are all constants, and whose attributes mention no symbol,
// is evaluated by the reference executor. Results larger than their operands and than 64 Ki
// elements stay unfolded (an expand of a scalar to a matrix costs less at run time than in the
// plan), and so do transposes of weights, which `linear` absorbs.
#include "ir/Executor.h"
#include "passes/Rewrite.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

static bool hasSymbolicAttr(const Op &op) {
  return llvm::any_of(op.givenAttrs(), [](const NamedAttr &a) {
    const Dims *dims = std::get_if<Dims>(&a.value);
    return dims && llvm::any_of(*dims, [](const Dim &d) { return !d.isConstant(); });
  });
}

static bool foldable(const Op &op) {
  if (op.is(OpCode::Constant) || op.info().has(Terminator) || op.info().has(InPlace) ||
      !op.info().eval)
    return false;
  int64_t inputs = 0;
  for (Value *v : op.operands()) {
    if (!v)
      continue;
    Op *c = constantOp(v);
    if (!c || !c->constant.valid())
      return false;
    inputs += c->constant.count();
  }
  if (hasSymbolicAttr(op))
    return false;
  constexpr int64_t small = 64 * 1024;
  int64_t outputs = 0;
  for (Value *r : op.results()) {
    auto n = elementCount(r->type.shape).constant();
    if (!n)
      return false;
    outputs += *n;
  }
  if (op.is(OpCode::Transpose) && outputs > small)
    return false;
  return outputs <= std::max(small, inputs);
}

llvm::Error foldConstants(PassContext &ctx) {
  for (auto &f : ctx.module().functions) {
    for (auto &op : f->ops()) {
      if (!foldable(*op))
        continue;
      llvm::SmallVector<Tensor> inputs;
      for (Value *v : op->operands())
        inputs.push_back(v ? constantOp(v)->constant : Tensor());
      auto outputs = evaluateOp(*op, inputs, {});
      if (!outputs) {
        // An op that cannot be evaluated on these constants fails at run time as well: say so now.
        return outputs.takeError();
      }
      Builder b(*f, op.get());
      b.setLocations(op->locations);
      for (unsigned i = 0; i < op->numResults(); ++i)
        op->result(i)->replaceAllUsesWith(b.constant((*outputs)[i]));
    }
    f->eraseDeadOps();
    if (llvm::Error e = f->inferTypes())
      return e;
  }
  return llvm::Error::success();
}

} // namespace gpt2c

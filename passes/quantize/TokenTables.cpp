#include "passes/quantize/TokenTables.h"

#include "ir/Executor.h"
#include "passes/Rewrite.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

static bool isTable(const Op &op) {
  return op.is(OpCode::Dequantize) && constantOp(op.operand(ops::Dequantize::Q)) &&
         constantOp(op.operand(ops::Dequantize::Scale)) && !op.operand(ops::Dequantize::Zero) &&
         llvm::any_of(op.result()->uses(), [](const Use &u) {
           return u.op->is(OpCode::Gather) && u.operand == ops::Gather::X;
         });
}

llvm::Error widenTables(Function &f) {
  for (auto &op : f.ops()) {
    if (!isTable(*op))
      continue;
    llvm::SmallVector<Tensor> inputs;
    for (const Value *v : op->operands())
      inputs.push_back(v ? constantOp(v)->constant : Tensor());
    auto floats = evaluateOp(*op, inputs, {});
    if (!floats)
      return floats.takeError();
    Builder b(f, op.get());
    b.setLocations(op->locations);
    Value *c = b.constant((*floats)[0]);
    c->name = op->result()->name;
    op->result()->replaceAllUsesWith(c);
  }
  f.eraseDeadOps();
  return llvm::Error::success();
}

} // namespace gpt2c

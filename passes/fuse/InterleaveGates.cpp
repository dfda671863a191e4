// interleave-gates: a product whose columns gate others of it, [gates; values], gets them as pairs,
//   gated(linear(x, [g0 g1 .. v0 v1 ..])) = gated(linear(x, [g0 v0 g1 v1 ..])) {interleaved}
// so that an epilogue has both where it has one. Weights, scales and biases move at compile time.
//
// Termination: an interleaved gate stays.
#include "passes/Pass.h"
#include "passes/quantize/ColumnOrder.h"

namespace gpt2c {

static llvm::Error interleave(Function &f, Op *gate, ColumnOrder &columns) {
  Op *product = gate->operand(ops::Gated::X)->def();
  if (!ColumnOrder::isFree(product) || !gate->operand(ops::Gated::X)->hasOneUse())
    return llvm::Error::success();
  const int64_t n = ColumnOrder::weightsOf(*product).dim(0) / 2;
  std::vector<int64_t> order;
  for (int64_t i = 0; i < n; ++i)
    order.insert(order.end(), {i, n + i});
  auto both = columns.reorder(f, *product, order);
  if (!both)
    return both.takeError();
  Builder at(f, gate);
  at.setLocations(gate->locations);
  auto y = at.value(OpCode::Gated, {*both},
                    {{"activation", gate->stringAttr("activation")}, {"interleaved", true}});
  if (!y)
    return y.takeError();
  (*y)->name = gate->result()->name;
  gate->result()->replaceAllUsesWith(*y);
  return llvm::Error::success();
}

llvm::Error interleaveGates(PassContext &ctx) {
  ColumnOrder columns;
  for (auto &f : ctx.module().functions) {
    llvm::SmallVector<Op *> gates;
    for (auto &op : f->ops())
      if (op->is(OpCode::Gated) && !op->boolAttr("interleaved"))
        gates.push_back(op.get());
    for (Op *gate : gates)
      if (llvm::Error e = interleave(*f, gate, columns))
        return e;
    f->eraseDeadOps();
  }
  return llvm::Error::success();
}

} // namespace gpt2c

#include "templates/tokens/Tokens.h"

#include "codegen/KernelWriter.h"
#include "templates/OpKernels.h"
#include "templates/generic/GenericLowerings.h"
#include "templates/norm/Norm.h"

namespace gpt2c {

KernelSource gatherLast(llvm::StringRef name, const GatherLastConfig &c) {
  KernelWriter w(name, "templates/tokens/token_ops.cuh", "tile::gatherLast");
  w.type("X", c.x);
  w.constant("D", c.d);
  w.constant("Threads", c.threads);
  w.in("x", c.x);
  w.in("length", Scalar::I32);
  w.out("y", c.x);
  w.i32("seq");
  w.pass("blockIdx.x");
  return w.finish(c.threads);
}

KernelSource argmax(llvm::StringRef name, const ArgmaxConfig &c) {
  KernelWriter w(name, "templates/tokens/token_ops.cuh", "tile::argmax");
  w.type("X", c.x);
  w.constant("Threads", c.threads);
  w.in("logits", c.x);
  w.out("next", Scalar::I32);
  w.value("u64 *", "best");
  w.value("unsigned *", "arrived");
  w.value("const int *", "choices");
  w.i32("n");
  w.pass("blockIdx.x, gridDim.x, blockIdx.y");
  return w.finish(c.threads);
}

KernelSource argmaxParts(llvm::StringRef name) {
  constexpr unsigned threads = 128;
  KernelWriter w(name, "templates/tokens/token_ops.cuh", "tile::argmaxParts");
  w.constant("Threads", threads);
  w.value("const u64 *", "best");
  w.out("next", Scalar::I32);
  w.value("const int *", "choices");
  w.i32("parts");
  w.pass("blockIdx.x");
  return w.finish(threads);
}

KernelSource advance(llvm::StringRef name) {
  KernelWriter w(name, "templates/tokens/token_ops.cuh", "tile::advance");
  w.in("next", Scalar::I32);
  for (const char *name : {"ids", "past", "tokens", "step"})
    w.out(name, Scalar::I32);
  w.i32("batch");
  w.i32("capacity");
  return w.finish(128);
}

Grid gridOf(const GatherLastConfig &, const plan::ExprT &sequences) { return blocks(sequences); }
Grid gridOf(const ArgmaxConfig &c, const plan::ExprT &rows) {
  return blocks(rt::constantExpr(c.parts), rows);
}
Grid argmaxPartsGrid(const plan::ExprT &rows) { return blocks(rows); }

llvm::Error lowerGatherLast(StepBuilder &b, Op &op) {
  Value *x = op.operand(ops::GatherLast::X), *length = op.operand(ops::GatherLast::Length),
        *y = op.result();
  if (!takes(OpKernel::GatherLast, op) || !isI32(length) || !x->type.shape.back().isConstant())
    return lowerGenericGatherLast(b, op);
  GatherLastConfig c;
  c.x = scalarOf(x->type.dtype);
  c.d = lastDim(x);
  c.threads = rowThreads(c.d);
  auto args =
      ArgList(b).in("x", x).in("length", length).out("y", y).i32("seq", x->type.shape[1]).take();
  if (!args)
    return args.takeError();
  return b.launch(op, "gather_last", gatherLast(b.pool().nextKernelName("gather_last"), c), *args,
                  gridOf(c, b.expr(y->type.shape[0])), bytesOf(y) * Dim(2), 0);
}

llvm::Error emitLargest(StepBuilder &b, const LargestGroup &group) {
  Op &op = *group.argMax;
  const StepBuilder::LargestParts *largest = b.largestOf(group.of);
  assert(largest && "the product is launched before");
  const Dim &rows = op.operand(ops::ArgMax::X)->type.shape[0];
  auto args = ArgList(b)
                  .set("best", largest->where)
                  .out("next", op.result())
                  .set("choices", b.choices())
                  .i32("parts", largest->parts)
                  .take();
  if (!args)
    return args.takeError();
  return b.launch(op, "arg_max", argmaxParts(b.pool().nextKernelName("argmax_parts")), *args,
                  argmaxPartsGrid(b.expr(rows)), rows * Dim(8 * largest->parts), 0);
}

llvm::Error lowerArgMax(StepBuilder &b, Op &op) {
  Value *x = op.operand(ops::ArgMax::X), *y = op.result();
  bool lastAxis = op.intAttr("axis") == -1 || op.intAttr("axis") == int64_t(x->type.rank()) - 1;
  if (!lastAxis || !isI32(y) || !takes(OpKernel::ArgMax, op) || !isFloat(x->type.dtype) ||
      x->type.rank() != 2 || op.boolAttr("select_last_index"))
    return lowerGenericArgMax(b, op);
  Dim rows = x->type.shape[0];
  ArgmaxConfig c;
  c.x = scalarOf(x->type.dtype);
  int64_t most = b.maximum(rows);
  auto args = ArgList(b)
                  .in("logits", x)
                  .out("next", y)
                  .set("best", b.sharedScratch("argmax-best", most * 8))
                  .set("arrived", b.sharedScratch("argmax-arrived", most * 4))
                  .set("choices", b.choices())
                  .i32("n", x->type.shape[1])
                  .take();
  if (!args)
    return args.takeError();
  return b.launch(op, "arg_max", argmax(b.pool().nextKernelName("argmax"), c), *args,
                  gridOf(c, b.expr(rows)), bytesOf(x), elementCount(x->type.shape));
}

} // namespace gpt2c

#include "templates/embed/Embed.h"

#include "codegen/KernelWriter.h"
#include "templates/OpKernels.h"
#include "templates/generic/GenericLowerings.h"
#include "templates/norm/Norm.h"

namespace gpt2c {

KernelSource embedding(llvm::StringRef name, const EmbeddingConfig &c) {
  KernelWriter w(name, "templates/embed/embedding.cuh", "tile::embedding");
  w.type("W", c.w);
  w.type("P", c.p);
  w.type("Y", c.y);
  w.constant("D", c.d);
  w.constant("Threads", c.threads);
  w.flag("Position", c.position);
  w.constant("Groups", c.groups);
  w.constant("Parts", c.parts);
  for (const char *name : {"ids", "positions", "past"})
    w.in(name, Scalar::I32);
  w.in("wteScale", Scalar::F32);
  w.in("wte", c.w);
  w.in("wpe", c.p);
  w.out("y", c.y);
  w.value("float2 *", "statistics");
  w.group([&] {
    w.pass("blockIdx.x, gridDim.x");
    w.i32("seq");
    w.i32("positionCount");
  });
  return w.finish(c.threads);
}

Grid gridOf(const EmbeddingConfig &, const plan::ExprT &rows) { return blocks(rows); }

llvm::Error lowerEmbed(StepBuilder &b, Op &op) { return emitEmbed(b, {&op}); }

llvm::Error emitEmbed(StepBuilder &b, const EmbedGroup &group) {
  Op &op = *group.embed;
  using enum ops::Embed::Operand;
  Value *ids = op.operand(Ids), *tokens = op.operand(Tokens), *positions = op.operand(Positions),
        *scale = op.operand(TokenScale), *y = op.result();
  if (!takes(OpKernel::Embedding, op) || !isI32(ids) || !isI32(op.operand(Past)) ||
      !isI32(op.operand(PositionIds)) || !y->type.shape.back().isConstant())
    return lowerGenericEmbed(b, op);
  EmbeddingConfig c;
  c.w = scalarOf(tokens->type.dtype);
  c.p = c.y = scalarOf(y->type.dtype);
  c.d = lastDim(y);
  c.threads = rowThreads(c.d);
  c.position = positions != nullptr;
  c.groups = scale ? int(lastDim(scale)) : 0;
  Dim seq = ids->type.shape[1];
  c.parts = group.statistics.parts;
  auto args = ArgList(b)
                  .set("statistics", c.parts > 0 ? b.addStatistics(y, leading(y), group.statistics)
                                                 : StepBuilder::null())
                  .in("ids", ids)
                  .in("positions", op.operand(PositionIds))
                  .in("past", op.operand(Past))
                  .in("wteScale", scale)
                  .in("wte", tokens)
                  .in("wpe", positions)
                  .out("y", y)
                  .i32("seq", seq)
                  .i32("positionCount", positions ? positions->type.shape[0] : Dim(0))
                  .take();
  if (!args)
    return args.takeError();
  return b.launch(op, "embed", embedding(b.pool().nextKernelName("embedding"), c), *args,
                  gridOf(c, b.expr(elementCount(ids->type.shape))), bytesOf(y) * Dim(3),
                  elementCount(y->type.shape));
}

} // namespace gpt2c

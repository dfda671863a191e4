// A rotary embedding whose pairs are neighbouring columns (templates/linear/parts/rotation.cuh).
#include "templates/linear/ends/EpilogueEnd.h"

#include "schedule/products/Operands.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

namespace rotation_end {

static bool fits(const Op &op, const Op &product) {
  using enum ops::Rope::Operand;
  if (!op.is(OpCode::Rope) || op.operand(Scale) || product.result(0)->uses()[0].operand != X)
    return false;
  const Value *cos = op.operand(Cos);
  const bool pairs =
      op.boolAttr("interleaved") && !op.boolAttr("to_halves") && op.intAttr("head_dim") % 2 == 0;
  return pairs && hasKernelTypes(op) && op.hasUses() && cos->type.shape[0].constant() &&
         cos->type.shape[1].constant();
}

static EpilogueStage stage(const LinearGroup &g, ArgList &args) {
  using enum ops::Rope::Operand;
  const Op &rope = *g.end;
  Value *cos = rope.operand(Cos), *positions = rope.operand(Positions);
  const Shape &shape = rope.operand(X)->type.shape;
  const int headDim = int(rope.intAttr("head_dim")), heads = int(rope.intAttr("heads"));
  args.in("cosines", cos)
      .in("sines", rope.operand(Sin))
      .in("positions", positions)
      .i32("places", cos->type.shape[0])
      .i32("rowsOfSequence", shape[1]);
  const bool first = positions->type.rank() == 1; // of each sequence's first token
  const bool shared = !first && positions->type.shape[0] == Dim(1) && shape[0] != Dim(1);
  EpilogueRotation r{.stored = scalarOf(rope.result()),
                     .table = scalarOf(cos),
                     .position = positions->type.dtype,
                     .headDim = headDim,
                     .pairs = int(*cos->type.shape[1].constant()),
                     .columns = heads ? heads * headDim : int(g.problem.n),
                     .of = first    ? EpilogueRotation::OfFirst
                           : shared ? EpilogueRotation::OfSequence
                                    : EpilogueRotation::OfRows};
  return {.kind = EpilogueStage::Rotation, .rotation = r};
}

static void write(EpilogueWriter &w, const EpilogueStage &stage) {
  const EpilogueRotation &r = stage.rotation;
  w.include("templates/linear/parts/rotation.cuh");
  constexpr llvm::StringLiteral positions[] = {"OfRows", "OfSequence", "OfFirst"};
  const std::string type =
      llvm::formatv("epilogue::Rotation<{0}, {1}, {2}, {3}, {4}, epilogue::Positions::{5}>",
                    cudaType(r.table), cudaType(r.position), r.headDim, r.pairs, r.columns,
                    positions[r.of])
          .str();
  const std::string table = ("const " + cudaType(r.table) + " *").str(),
                    position = ("const " + cudaType(r.position) + " *").str();
  std::string angles;
  for (const char *name : {"cosines", "sines"})
    angles += w.declare(table, name) + ", ";
  angles += w.declare(position, "positions") + ", ";
  for (const char *name : {"places", "rowsOfSequence"})
    angles += w.declare("int", name) + ", ";
  w.wrapIn("epilogue::Turned", type + ", " + cudaType(r.stored).str(), "{" + angles + "}");
}

} // namespace rotation_end

const EpilogueEnd endRotation = {
    {.kind = ProductEndKind::Rotation,
     .fits = rotation_end::fits,
     .name = [](const Op &) { return std::string("+rope"); }},
    rotation_end::stage,
    rotation_end::write,
};

} // namespace gpt2c

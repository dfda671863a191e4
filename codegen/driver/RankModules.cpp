// The functions of ranks as a module like any other, whose launches are made the same way.
#include "codegen/driver/Draft.h"
#include "ir/Builder.h"

namespace gpt2c {

/// Constants in the place of parts of weights, so that results keep their numbers.
static void placeStandIns(PlanPool &pool, Function &f) {
  llvm::SmallVector<Op *> parts;
  for (auto &op : f.ops())
    if (op->is(OpCode::RankPart) && op->operand(0)->def() &&
        op->operand(0)->def()->is(OpCode::Constant))
      parts.push_back(op.get());
  for (Op *op : parts) {
    const Tensor &whole = op->operand(0)->def()->constant;
    const int64_t axis = op->intAttr("axis");
    Builder b(f, op);
    b.setLocations(op->locations);
    Value *constant = b.constant(pool.standIn({.whole = whole,
                                               .axis = axis < 0 ? axis + whole.rank() : axis,
                                               .unit = op->intAttr("unit"),
                                               .units = op->intsAttr("units"),
                                               .ranks = op->intAttr("ranks")}));
    constant->name = op->result()->name;
    op->result()->replaceAllUsesWith(constant);
    f.erase(op);
  }
}

Module moduleOfRank(const Module &module, PlanPool &pool, int64_t ranks) {
  Module out;
  out.name = module.name;
  out.properties = module.properties;
  for (auto &f : module.functions)
    if (functions::ranksOf(f->name()) == ranks) {
      out.functions.push_back(f->clone(f->name().substr(0, f->name().rfind("_tp"))));
      placeStandIns(pool, *out.functions.back());
    }
  return out;
}

} // namespace gpt2c

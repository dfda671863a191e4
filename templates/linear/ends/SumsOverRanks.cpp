#include "templates/linear/ends/SumsOverRanks.h"

#include "ir/Error.h"
#include "runtime/cuda/ExchangeRecord.h"
#include "schedule/products/Operands.h"

namespace gpt2c::sums_over_ranks {

/// The cast that alone reads a sum over ranks; null: there is none.
static const Op *castBehind(const Op &sum) {
  const auto uses = sum.result()->uses();
  const Op *reader = uses.size() == 1 ? uses[0].op : nullptr;
  return reader && reader->is(OpCode::Cast) && hasKernelTypes(*reader) ? reader : nullptr;
}

bool fits(const Op &op, const Op &product) {
  const Op *cast =
      op.is(OpCode::AllReduce) && product.is(OpCode::Linear) ? castBehind(op) : nullptr;
  if (!cast || product.result(0)->type.dtype != DType::F32)
    return false;
  const Scalar x = scalarOf(product.operand(ops::Linear::X));
  return isNarrow(x) && scalarOf(cast->result()) == x && lastDim(op.result()) % 8 == 0 &&
         op.intAttr("ranks") <= rt::kMostExchangingRanks;
}

Scalar stores(const Op &op) { return scalarOf(castBehind(op)->result()); }

EpilogueStage stage(EpilogueStage::Kind kind, const LinearGroup &g, ArgList &args, int64_t bytes) {
  args.set("exchange", StepBuilder::exchange(bytes));
  EpilogueStage stage{.kind = kind};
  stage.ranks = int(g.end->intAttr("ranks"));
  return stage;
}

void write(EpilogueWriter &w, const EpilogueStage &stage, llvm::StringRef header,
           llvm::StringRef type) {
  w.include(("templates/linear/parts/" + header).str());
  w.wrapIn(("epilogue::" + type).str(), std::to_string(stage.ranks),
           w.declare("tile::Exchange *", "exchange") + ", 0");
}

} // namespace gpt2c::sums_over_ranks

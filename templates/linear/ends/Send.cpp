// Partial sums that go to all ranks as tiles end (templates/linear/parts/sent.cuh), rounded to the
// type of what becomes of them.
#include "ir/Error.h"
#include "runtime/cuda/ExchangeRecord.h"
#include "schedule/cost/LinkRates.h"
#include "schedule/products/Operands.h"
#include "templates/linear/ends/EpilogueEnd.h"

namespace gpt2c {

namespace send_end {

/// The cast that alone reads a sum over ranks; null: there is none.
static const Op *castBehind(const Op &sum) {
  const auto uses = sum.result()->uses();
  const Op *reader = uses.size() == 1 ? uses[0].op : nullptr;
  return reader && reader->is(OpCode::Cast) && hasKernelTypes(*reader) ? reader : nullptr;
}

static bool fits(const Op &op, const Op &product) {
  const Op *cast =
      op.is(OpCode::AllReduce) && product.is(OpCode::Linear) ? castBehind(op) : nullptr;
  if (!cast || product.result(0)->type.dtype != DType::F32)
    return false;
  const Scalar x = scalarOf(product.operand(ops::Linear::X));
  return isNarrow(x) && scalarOf(cast->result()) == x && lastDim(op.result()) % 8 == 0 &&
         op.intAttr("ranks") <= rt::kMostExchangingRanks;
}

static Scalar stores(const Op &op) { return scalarOf(castBehind(op)->result()); }

static double saves(const LinearProblem &ended, const Op &op, double product) {
  const LinkRates link;
  const int64_t count = ended.rows * ended.n, ranks = op.intAttr("ranks");
  return link.exchange(count, ranks) - link.sentSums(count, ranks, product);
}

static EpilogueStage stage(const LinearGroup &g, ArgList &args) {
  args.set("exchange", StepBuilder::exchange(g.problem.rows * g.problem.n * 2));
  EpilogueStage stage{.kind = EpilogueStage::Send};
  stage.ranks = int(g.end->intAttr("ranks"));
  return stage;
}

static void write(EpilogueWriter &w, const EpilogueStage &stage) {
  w.include("templates/linear/parts/sent.cuh");
  w.wrapIn("epilogue::Sent", std::to_string(stage.ranks),
           w.declare("tile::Exchange *", "exchange") + ", 0");
}

} // namespace send_end

const EpilogueEnd endSend = {
    {.kind = ProductEndKind::Send,
     .fits = send_end::fits,
     .name = [](const Op &) { return std::string("+send"); },
     .stores = send_end::stores,
     .saves = send_end::saves},
    send_end::stage,
    send_end::write,
};

} // namespace gpt2c

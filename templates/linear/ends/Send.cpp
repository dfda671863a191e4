// Partial sums that go to all ranks as tiles end (templates/linear/parts/sent.cuh), rounded to the
// type of what becomes of them.
#include "schedule/cost/LinkRates.h"
#include "templates/linear/ends/SumsOverRanks.h"

namespace gpt2c {

namespace send_end {

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
     .fits = sums_over_ranks::fits,
     .name = [](const Op &) { return std::string("+send"); },
     .stores = sums_over_ranks::stores,
     .saves = send_end::saves},
    send_end::stage,
    send_end::write,
};

} // namespace gpt2c

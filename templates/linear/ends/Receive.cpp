// Partial sums that tiles exchange with the same tiles of other ranks before anything is added to
// them (templates/linear/parts/received.cuh).
#include "schedule/cost/LinkRates.h"
#include "templates/linear/ends/SumsOverRanks.h"

namespace gpt2c {

namespace receive_end {

static double saves(const LinearProblem &ended, const Op &op, double product) {
  const LinkRates link;
  const int64_t count = ended.rows * ended.n, ranks = op.intAttr("ranks");
  const double launch = 2 * ended.target.rates.launches();
  return link.sumApart(count, ranks, product, launch) - link.receivedSums(count, ranks);
}

static EpilogueStage stage(const LinearGroup &g, ArgList &args) {
  return sums_over_ranks::stage(EpilogueStage::Receive, g, args);
}

static void write(EpilogueWriter &w, const EpilogueStage &stage) {
  sums_over_ranks::write(w, stage, "received.cuh", "Received");
}

} // namespace receive_end

const EpilogueEnd endReceive = {
    {.kind = ProductEndKind::Receive,
     .fits = sums_over_ranks::fits,
     .name = [](const Op &) { return std::string(); }, // the sum's own
     .stores = sums_over_ranks::stores,
     .saves = receive_end::saves,
     .otherwise = &endScatter},
    receive_end::stage,
    receive_end::write,
};

} // namespace gpt2c

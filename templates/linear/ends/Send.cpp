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
  return sums_over_ranks::stage(EpilogueStage::Send, g, args, g.problem.rows * g.problem.n * 2);
}

static void write(EpilogueWriter &w, const EpilogueStage &stage) {
  sums_over_ranks::write(w, stage, "sent.cuh", "Sent");
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

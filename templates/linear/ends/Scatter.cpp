// Partial sums of which each rank ends some rows for all (templates/linear/parts/scattered.cuh),
// rounded to the type of what becomes of them.
#include "ir/Function.h"
#include "ir/FunctionNames.h"
#include "schedule/cost/LinkRates.h"
#include "templates/linear/ends/SumsOverRanks.h"

#include "llvm/ADT/STLExtras.h"

#include <limits>

namespace gpt2c {

namespace scatter_end {

/// Whether `v` is a result of the function.
static bool isReturned(const Value &v) {
  return llvm::any_of(v.uses(), [](const Use &u) {
    return u.op->info().has(Terminator) || (isView(*u.op) && isReturned(*u.op->result()));
  });
}

/// Whether what becomes of a sum lies where other ranks find it, who write parts of it: it is no
/// result of the function, and activations of @forward are elsewhere.
static bool fits(const Op &op, const Op &product) {
  if (!sums_over_ranks::fits(op, product) || op.function()->name() == functions::forward)
    return false;
  const Value *v = op.result();
  for (;;) { // behind what is added
    if (isReturned(*v))
      return false;
    const auto uses = v->uses();
    if (uses.size() != 1 || !(uses[0].op->is(OpCode::Add) || uses[0].op->is(OpCode::Cast)))
      return true;
    v = uses[0].op->result();
  }
}

/// Bytes of the sums of whole tiles of 128 rows and up to 256 columns.
static int64_t sentBytes(const LinearProblem &p) {
  return int64_t(llvm::alignTo(p.rows, 128)) * (p.n + 255) * 2;
}

static double saves(const LinearProblem &ended, const Op &op, double product) {
  const LinkRates link;
  const int64_t count = ended.rows * ended.n, ranks = op.intAttr("ranks");
  // It may be asked where another end of the op fits.
  if (!fits(op, *op.operand(0)->def()) || sentBytes(ended) > INT32_MAX)
    return -std::numeric_limits<double>::infinity();
  const double launch = 2 * ended.target.rates.launches();
  return link.sumApart(count, ranks, product, launch) - link.scatteredSums(count, ranks, product);
}

static EpilogueStage stage(const LinearGroup &g, ArgList &args) {
  return sums_over_ranks::stage(EpilogueStage::Scatter, g, args, sentBytes(g.problem));
}

static void write(EpilogueWriter &w, const EpilogueStage &stage) {
  sums_over_ranks::write(w, stage, "scattered.cuh", "Scattered");
}

} // namespace scatter_end

const EpilogueEnd endScatter = {
    {.kind = ProductEndKind::Scatter,
     .fits = scatter_end::fits,
     .name = [](const Op &) { return std::string(); }, // the sum's own
     .stores = sums_over_ranks::stores,
     .saves = scatter_end::saves,
     .otherwise = &endSend},
    scatter_end::stage,
    scatter_end::write,
};

} // namespace gpt2c

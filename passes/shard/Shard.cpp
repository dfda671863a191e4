// shard: for each number of ranks that is asked for, @prefill, @decode, @extend and @forward as one
// of so many ranks runs them (docs/parallel.md). A rank has some heads of attention and of the KV
// state, columns of the products that make them, columns of those whose results meet rows of others
//   y = all_reduce(f(x W1[columns]^T) W2[:, columns]^T) + bias + residual
// and columns of the logits, which all_gather joins. rank_part says which part of a weight is a
// rank's; the weights stay one for all ranks.
//
// Termination: a function that is there is not made again.
#include "ir/FunctionNames.h"
#include "passes/Pass.h"
#include "passes/shard/ShardBuilder.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// Heads that ranks compute as zeros, since they do not divide.
static void notePadding(PassContext &ctx, const HeadDeal &deal) {
  const auto zeros = llvm::count(deal.queries, -1);
  if (!zeros)
    return;
  ctx.note("the heads do not divide: each of " + llvm::Twine(deal.ranks) + " ranks has " +
           llvm::Twine(deal.queriesOfRank()) + " of queries, " + llvm::Twine(zeros) +
           " of all of them are zeros");
}

static llvm::Error shardFunction(PassContext &ctx, llvm::StringRef name, int64_t ranks,
                                 bool isFirst) {
  Module &m = ctx.module();
  const Function *f = m.function(name);
  const std::string sharded = functions::ofRanks(name, ranks);
  if (!f || m.function(sharded))
    return llvm::Error::success();
  auto plan = planShards(*f, ranks);
  if (!plan && name == functions::forward) {
    ctx.note("the exported graph as it is, @forward, runs as one alone: " +
             llvm::toString(plan.takeError()));
    return llvm::Error::success();
  }
  if (!plan)
    return plan.takeError();
  if (isFirst) {
    notePadding(ctx, plan->heads);
    for (const Obstacle &o : plan->whole)
      ctx.missed("every one of " + llvm::Twine(ranks) + " ranks computes " + o.reason,
                 o.op->locations)
          .of("shard")
          .stoppedBy(o);
  }
  auto made = buildShard(*f, *plan, sharded);
  if (!made)
    return made.takeError();
  m.functions.push_back(std::move(*made));
  return llvm::Error::success();
}

llvm::Error shard(PassContext &ctx) {
  for (int64_t ranks : ctx.options().tensorParallel)
    for (const char *name :
         {functions::decode, functions::prefill, functions::extend, functions::forward})
      if (llvm::Error e = shardFunction(ctx, name, ranks, name == functions::decode))
        return e;
  return llvm::Error::success();
}

} // namespace gpt2c

// A rank's function, from one for all and a plan of what ranks share.
#pragma once

#include "passes/shard/ShardPlan.h"

namespace gpt2c {

/// `f` as each of plan.ranks ranks runs it: one function for all of them, which says by rank_part
/// what each has. Its results are those of `f` on every rank, bit for bit the same on all, but for
/// the KV state, of which a rank has its heads.
llvm::Expected<std::unique_ptr<Function>> buildShard(const Function &f, const ShardPlan &plan,
                                                     llvm::StringRef name);

} // namespace gpt2c

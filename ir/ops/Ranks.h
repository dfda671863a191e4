// Helpers of the ops that several ranks run together: all_reduce, all_gather and rank_part.
#pragma once

#include "ir/ops/Common.h"

namespace gpt2c {

/// The attribute `ranks`.
AttrSpec ranksAttr();
/// Refuses less than one rank.
llvm::Error checkRanks(InferContext &c);

/// The rank that this thread runs as; an error where there are not as many ranks as the op is for.
llvm::Expected<int> rankOf(const EvalContext &c);
/// What each rank has of `mine`, [ranks, mine.shape], in their order.
llvm::Expected<Tensor> ofAllRanks(const EvalContext &c, const Tensor &mine);

} // namespace gpt2c

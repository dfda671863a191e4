// What ends of products share whose results ranks add up: a sum over ranks that a cast to the type
// of the product's rows alone reads.
#pragma once

#include "templates/linear/ends/EpilogueEnd.h"

namespace gpt2c::sums_over_ranks {

bool fits(const Op &op, const Op &product);
/// What each rank rounds its sums to.
Scalar stores(const Op &op);
/// The stage of such an end, with a place in the record of exchanges where ranks send `bytes`.
EpilogueStage stage(EpilogueStage::Kind kind, const LinearGroup &g, ArgList &args,
                    int64_t bytes = 0);
/// Writes epilogue::`type` of that header.
void write(EpilogueWriter &w, const EpilogueStage &stage, llvm::StringRef header,
           llvm::StringRef type);

} // namespace gpt2c::sums_over_ranks

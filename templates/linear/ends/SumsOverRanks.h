// What ends of products share whose results ranks add up: a sum over ranks that a cast to the type
// of the product's rows alone reads.
#pragma once

#include "templates/linear/ends/EpilogueEnd.h"

namespace gpt2c::sums_over_ranks {

bool fits(const Op &op, const Op &product);
/// What each rank rounds its sums to.
Scalar stores(const Op &op);

} // namespace gpt2c::sums_over_ranks

// Cases of more elements than a block or a warp takes at once, against the reference executor in
// double precision.
#pragma once

#include "OpCases.h"

namespace gpt2c::suite {

std::vector<OpCase> largeCases();

} // namespace gpt2c::suite

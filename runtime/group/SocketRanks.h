// Ranks that are processes, of one host or several, as one device: rank 0 has it, the others
// follow.
#pragma once

#include "runtime/group/Rendezvous.h"
#include "runtime/group/ThreadRanks.h"

namespace gpt2c::rt {

/// Waits for the other ranks, which followRank(), and is one device with them; at.rank is 0. A rank
/// that is lost ends the call, and every later one, with an error that names it.
Result<std::unique_ptr<Backend>> openSocketRanks(const Plan::Ptr &plan, const Rendezvous &at,
                                                 const OpenRank &open);

/// Makes the calls of rank 0 until that has no more. at.rank is another than 0.
Status followRank(const Plan::Ptr &plan, const Rendezvous &at, const OpenRank &open);

} // namespace gpt2c::rt

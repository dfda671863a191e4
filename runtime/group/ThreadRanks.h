// Ranks that are threads of one process, as one device.
#pragma once

#include "runtime/device/Backend.h"
#include "runtime/group/RankLink.h"

#include <functional>
#include <memory>

namespace gpt2c::rt {

/// Opens the device of a rank, which the link outlives.
using OpenRank = std::function<Result<std::unique_ptr<Backend>>(RankLink &link)>;

/// Ranks each with a thread. An error of a rank ends the call on all, and names it.
Result<std::unique_ptr<Backend>> openThreadRanks(const Plan::Ptr &plan, const Division &division,
                                                 const OpenRank &open);

} // namespace gpt2c::rt

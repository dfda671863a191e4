// Ranks on GPUs of this host, as one device.
#pragma once

#include "runtime/device/Backend.h"

#include <span>

namespace gpt2c::rt {

/// Seconds that a kernel waits for another rank, unless something else is asked.
inline constexpr double kExchangePatience = 1;

struct CudaRankOptions {
  double patience = 0; ///< seconds that a kernel waits for another rank; 0: as long as usual
  int stages = 1;      ///< of RankLink, and so is microRows
  int microRows = 0;
};

/// Loads the plan as a rank on each of these devices, as the driver counts them; one that is named
/// twice has two. Code::Incompatible where the plan is not for as many ranks, has no kernels for
/// them, or devices do not reach each other's memory.
Result<std::unique_ptr<Backend>> makeCudaRanks(const Plan::Ptr &plan, std::span<const int> ordinals,
                                               const CudaRankOptions &options = {});

} // namespace gpt2c::rt

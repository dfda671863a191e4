// The CPU device: runs the IR in a plan with the reference executor, op by op.
#pragma once

#include "runtime/device/Backend.h"
#include "runtime/group/RankLink.h"

namespace gpt2c {

struct CpuOptions {
  /// Threads of the matrix products, which are process-wide; 0: one for each core.
  int threads = 0;
  /// Runs as one of link->size() ranks, which outlives the device; null: alone. Incompatible where
  /// the plan is not for so many.
  rt::RankLink *link = nullptr;
};

/// Loads the plan's IR. The state has room for the plan's largest batch; memory is taken as it is
/// used.
rt::Result<std::unique_ptr<rt::Backend>> makeCpuBackend(rt::Plan::Ptr plan,
                                                        const CpuOptions &options = {});

} // namespace gpt2c

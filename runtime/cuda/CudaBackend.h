// Running a plan on a CUDA device.
#pragma once

#include "runtime/Backend.h"

namespace gpt2c::rt {

/// Loads the plan onto the first CUDA device: weights, the best image of every source, arenas and
/// the KV state. Code::Incompatible where there is no driver, no device, or no image for it.
Result<std::unique_ptr<Backend>> makeCudaBackend(Plan::Ptr plan);

} // namespace gpt2c::rt

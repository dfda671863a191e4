// Running a plan on a CUDA device.
#pragma once

#include "runtime/device/Backend.h"

namespace gpt2c::rt {

/// Loads the plan onto CUDA device `ordinal`, as the driver counts: weights, the best image of
/// every source, arenas and the KV state. Code::Incompatible where there is no driver, no such
/// device, or no image for it.
Result<std::unique_ptr<Backend>> makeCudaBackendOn(Plan::Ptr plan, int ordinal);

/// The same on the first device.
Result<std::unique_ptr<Backend>> makeCudaBackend(Plan::Ptr plan);

} // namespace gpt2c::rt

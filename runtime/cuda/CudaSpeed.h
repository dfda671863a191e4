// How fast a CUDA device is now, and could be.
#pragma once

#include "runtime/cuda/CudaDevice.h"
#include "runtime/device/Backend.h"

namespace gpt2c::rt::cuda {

/// Copies within a part of the device's free memory. Clocks come from NVML, where its library is.
Result<DeviceSpeed> measureSpeed(const std::shared_ptr<CudaDevice> &device);

} // namespace gpt2c::rt::cuda

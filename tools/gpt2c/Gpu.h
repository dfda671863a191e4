// The GPU that gpt2c uses itself: --device.
#pragma once

#include "runtime/session/Session.h"
#include "tools/common/flags/DeviceName.h"

#include <functional>
#include <string>

namespace gpt2c {

/// What --device names. Error: Usage.
llvm::Expected<DeviceName> deviceFlag();

/// The architecture of a GPU, as --gpu-arch has it. Error: there is no such GPU or no driver.
llvm::Expected<std::string> nativeArch(const DeviceName &device);

/// Opens plans on the GPU of that number.
std::function<rt::Result<std::unique_ptr<rt::Backend>>(rt::Plan::Ptr)>
gpuOf(const DeviceName &device);

} // namespace gpt2c

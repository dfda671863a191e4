// What people call a device.
#pragma once

#include "runtime/Status.h"

#include <string_view>

namespace gpt2c::rt {

struct DeviceName {
  enum class Kind {
    Auto, ///< the first GPU where the plan has code for it, else the CPU
    Cuda, ///< that GPU or an error
    Cpu,
  };
  Kind kind = Kind::Auto;
  int ordinal = 0; ///< of the GPU, as the driver counts
};

/// "auto", "cuda" (the first GPU), "cuda:N" or "cpu"; Usage for anything else.
Result<DeviceName> parseDeviceName(std::string_view text);

} // namespace gpt2c::rt

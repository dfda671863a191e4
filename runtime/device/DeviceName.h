// What people call a device.
#pragma once

#include "runtime/Status.h"

#include <string_view>
#include <vector>

namespace gpt2c::rt {

struct DeviceName {
  enum class Kind {
    Auto, ///< the first GPU where the plan has code for it, else the CPU
    Cuda, ///< that GPU or an error
    Cpu,
  };
  Kind kind = Kind::Auto;
  int ordinal = 0; ///< of the GPU, as the driver counts
  /// Of several, each of which is a rank; one that is named twice is two. Empty: one alone.
  std::vector<int> ranks = {};
};

/// "auto", "cuda" (the first GPU), "cuda:N", "cuda:N,M,.." (a rank on each) or "cpu"; Usage for
/// anything else.
Result<DeviceName> parseDeviceName(std::string_view text);

} // namespace gpt2c::rt

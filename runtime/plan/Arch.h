// GPU architecture names of a plan's images and which of them a device can load.
#pragma once

#include <optional>
#include <string_view>

namespace gpt2c::rt {

struct ComputeCapability {
  int major = 0;
  int minor = 0;
};

/// A name such as "sm_90a" (machine code) or "compute_80" (PTX).
struct Arch {
  ComputeCapability capability;
  char suffix = 0; ///< 'a': this capability only, 'f': this family only, 0: portable.
  bool ptx = false;

  static std::optional<Arch> parse(std::string_view name);
};

/// How well an image for `arch` suits `device`: 0 when it cannot run there, else the larger the
/// better. Machine code for the very device comes first, then machine code of the same major
/// version, then PTX, the newest first.
int imageRank(const Arch &arch, ComputeCapability device);

} // namespace gpt2c::rt

#include "runtime/plan/Arch.h"

#include <charconv>

namespace gpt2c::rt {

std::optional<Arch> Arch::parse(std::string_view name) {
  Arch arch;
  if (name.starts_with("compute_")) {
    arch.ptx = true;
    name.remove_prefix(8);
  } else if (name.starts_with("sm_")) {
    name.remove_prefix(3);
  } else {
    return std::nullopt;
  }
  if (name.ends_with('a') || name.ends_with('f')) {
    arch.suffix = name.back();
    name.remove_suffix(1);
  }
  if (name.size() < 2 || name.size() > 3)
    return std::nullopt;
  int number = 0;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size() || number < 10)
    return std::nullopt;
  arch.capability = {number / 10, number % 10};
  return arch;
}

int imageRank(const Arch &arch, ComputeCapability device) {
  int built = arch.capability.major * 10 + arch.capability.minor;
  int have = device.major * 10 + device.minor;
  bool sameMajor = arch.capability.major == device.major;
  bool allowed = arch.suffix == 'a'                  ? built == have
                 : (arch.suffix == 'f' || !arch.ptx) ? sameMajor && built <= have
                                                     : built <= have;
  if (!allowed)
    return 0;
  int specialised = arch.suffix == 'a' ? 2 : arch.suffix == 'f' ? 1 : 0;
  return (arch.ptx ? 0 : 10000) + built * 3 + specialised;
}

} // namespace gpt2c::rt

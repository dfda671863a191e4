#include "runtime/device/DeviceName.h"

#include <charconv>
#include <climits>
#include <string>

namespace gpt2c::rt {

Result<DeviceName> parseDeviceName(std::string_view text) {
  if (text == "auto")
    return DeviceName{};
  if (text == "cpu")
    return DeviceName{DeviceName::Kind::Cpu, 0};
  if (text == "cuda")
    return DeviceName{DeviceName::Kind::Cuda, 0};
  if (text.starts_with("cuda:")) {
    const std::string_view number = text.substr(5);
    unsigned ordinal = 0; // of which a sign is no part
    const auto [end, error] = std::from_chars(number.begin(), number.end(), ordinal);
    if (error == std::errc() && end == number.end() && ordinal <= unsigned(INT_MAX))
      return DeviceName{DeviceName::Kind::Cuda, int(ordinal)};
  }
  return {Code::Usage,
          "there is no device '" + std::string(text) + "'; there are auto, cuda, cuda:N and cpu"};
}

} // namespace gpt2c::rt

#include "runtime/device/DeviceName.h"

#include <charconv>
#include <climits>
#include <string>

namespace gpt2c::rt {

/// Of "0,1,..", none of them with a sign; empty: it is something else.
static std::vector<int> numbersOf(std::string_view text) {
  std::vector<int> numbers;
  for (;;) {
    unsigned number = 0; // of which a sign is no part
    const auto [end, error] = std::from_chars(text.begin(), text.end(), number);
    if (error != std::errc() || number > unsigned(INT_MAX))
      return {};
    numbers.push_back(int(number));
    if (end == text.end())
      return numbers;
    if (*end != ',')
      return {};
    text.remove_prefix(size_t(end - text.begin()) + 1);
  }
}

Result<DeviceName> parseDeviceName(std::string_view text) {
  if (text == "auto")
    return DeviceName{};
  if (text == "cpu")
    return DeviceName{DeviceName::Kind::Cpu};
  if (text == "cuda")
    return DeviceName{DeviceName::Kind::Cuda};
  if (const std::vector<int> gpus =
          text.starts_with("cuda:") ? numbersOf(text.substr(5)) : std::vector<int>();
      !gpus.empty())
    return DeviceName{DeviceName::Kind::Cuda, gpus.front(),
                      gpus.size() > 1 ? gpus : std::vector<int>()};
  return {Code::Usage, "there is no device '" + std::string(text) +
                           "'; there are auto, cuda, cuda:N, cuda:N,M,.. and cpu"};
}

} // namespace gpt2c::rt

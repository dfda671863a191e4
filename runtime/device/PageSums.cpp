#include "runtime/device/PageSums.h"

#include <string>

#include <xxhash.h>

namespace gpt2c::rt {

void PageSums::put(int32_t page, std::span<const std::byte> bytes) {
  if (!sums_.empty())
    sums_[size_t(page)] = XXH3_64bits(bytes.data(), bytes.size());
}

Status PageSums::check(int32_t page, std::span<const std::byte> bytes) const {
  if (sums_.empty() || sums_[size_t(page)] == XXH3_64bits(bytes.data(), bytes.size()))
    return {};
  return {Code::Corrupt, "page " + std::to_string(page) +
                             " in host memory is not what was put there: its checksum differs"};
}

} // namespace gpt2c::rt

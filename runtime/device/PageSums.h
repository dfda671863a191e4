// Whether pages in host memory are as they came.
#pragma once

#include "runtime/Status.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gpt2c::rt {

/// An XXH3 of 64 bits for each page, where pages are checked.
class PageSums {
public:
  PageSums() = default;
  PageSums(int32_t pages, bool checks) : sums_(checks ? size_t(pages) : 0) {}

  void put(int32_t page, std::span<const std::byte> bytes);
  /// Corrupt, with the page, where these are not the bytes that were put.
  Status check(int32_t page, std::span<const std::byte> bytes) const;

private:
  std::vector<uint64_t> sums_; ///< empty: nothing is checked
};

} // namespace gpt2c::rt

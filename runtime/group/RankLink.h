// What one rank of several that run a plan together sees of the others, wherever they are.
#pragma once

#include "runtime/Status.h"

#include <cstddef>
#include <span>

namespace gpt2c::rt {

class RankLink {
public:
  virtual ~RankLink() = default;
  /// From 0 to size() - 1.
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// 1: all ranks share every layer. Else size(): each has some of the layers, in the order of
  /// ranks.
  virtual int stages() const { return 1; }
  /// Gives `mine` to every rank and waits for theirs: `all`, of size() * mine.size() bytes, is what
  /// each gave, in the order of ranks. Ranks make the same calls in the same order. An error names
  /// the rank that does not answer; then every further call fails.
  virtual Status gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  /// Returns when every rank has called it as often; errors are gather()'s.
  virtual Status meet() { return gather({}, {}); }
};

} // namespace gpt2c::rt

// Prefixes that sequences of a call share, found by their pages: attention computes the keys of
// each once for all of them.
#pragma once

#include "runtime/plan/PrefixTiles.h"

#include <cstdint>
#include <span>
#include <vector>

namespace gpt2c::rt {

/// What a device takes.
struct PrefixLimits {
  int32_t pageTokens = 64;
  int32_t members = 1; ///< sequences of a tile at most
  int32_t tiles = 0;   ///< of a call at most
  int32_t blocks = 1;  ///< tiles that the device computes at a time
  int32_t multiprocessors = 132;
  int64_t pageBytes = 0; ///< keys and values of a page in one layer
};

/// As the ports of runtime/plan/PrefixTiles.h have it.
struct SharedPrefixes {
  std::vector<int32_t> sequences; ///< [sequences, 2]
  std::vector<int32_t> tiles;     ///< [count, prefixTileHead + members]
  int32_t count = 0;
};

/// Of sequences that have positions[b] tokens in pages tables[b * columns] and on, one new token
/// each: full pages that several of them begin with. None where that saves less than a launch
/// takes. The same arguments give the same tiles.
SharedPrefixes sharedPrefixes(std::span<const int32_t> positions, std::span<const int32_t> tables,
                              int32_t columns, const PrefixLimits &limits);

} // namespace gpt2c::rt

// What kernels of ranks find of each other, in device memory: templates/exchange/exchange.cuh has
// the same.
#pragma once

#include <cstdint>

namespace gpt2c::rt {

/// GPUs of one host that exchange, at most.
inline constexpr int kMostExchangingRanks = 8;
/// Words of a slot from each rank: as many as the largest grid of an exchange has places.
inline constexpr uint32_t kExchangeWords = 1 << 17;

struct ExchangeRecord {
  uint64_t slots[kMostExchangingRanks] = {};
  uint64_t error = 0;    ///< address of a u64 of the host: a rank + 1 and in the high half a round
  uint64_t patience = 0; ///< nanoseconds
  int32_t rank = 0, ranks = 0;
  uint32_t words = kExchangeWords;
  uint32_t round = 0, arrived = 0, failed = 0;
};
static_assert(sizeof(ExchangeRecord) == 104);

/// Bytes of a rank's slots, of two rounds.
constexpr uint64_t exchangeBytes(int ranks) { return uint64_t(2) * ranks * kExchangeWords * 8; }

} // namespace gpt2c::rt

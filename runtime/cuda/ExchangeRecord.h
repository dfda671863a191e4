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
  uint32_t apart = 0;     ///< 1: no two ranks share a device
  uint32_t sums = 0;      ///< the last round of sums that products send
  uint64_t sumsAt = 0;    ///< of them in the memory of a rank
  uint64_t sumsBytes = 0; ///< of a rank's in a round
  /// Of each rank: workspace of kernels, logits and activations, laid out alike on all.
  uint64_t scratch[kMostExchangingRanks] = {}, logits[kMostExchangingRanks] = {},
           arena[kMostExchangingRanks] = {};
};
static_assert(sizeof(ExchangeRecord) == 320);

/// Blocks of a launch at most, words of a tile, slots of tiles of a block and a rank.
inline constexpr uint64_t kExchangeBlocks = 64, kTileWords = 8192, kTileSlots = 4;

/// Bytes of a rank's memory: slots of two rounds, tiles and the number of each, and how many tiles
/// each block has sent.
constexpr uint64_t exchangeBytes(int ranks) {
  const uint64_t tiles = kTileSlots * uint64_t(ranks) * kExchangeBlocks;
  return uint64_t(2) * uint64_t(ranks) * kExchangeWords * 8 + tiles * (kTileWords + 1) * 4 +
         kExchangeBlocks * 4;
}

/// Of the numbers in front of the sums that products send.
inline constexpr uint64_t kSumNumbersBytes = 1024;

/// And behind them, of a rank's: for a number of each 16 rows of a tile, of 2 KiB at least.
constexpr uint64_t sumFlagsBytes(uint64_t ofRank) { return ofRank / 64; }

/// Where those begin in a rank's memory, and the bytes of all, for up to so many of a rank, a
/// multiple of 256.
constexpr uint64_t sumsAt(int ranks) { return (exchangeBytes(ranks) + 255) / 256 * 256; }
constexpr uint64_t sumsBytes(int ranks, uint64_t ofRank) {
  return ofRank == 0 ? 0
                     : kSumNumbersBytes + uint64_t(ranks) * (2 * ofRank + sumFlagsBytes(ofRank));
}

} // namespace gpt2c::rt

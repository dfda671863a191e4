// What @steps and @extend are told of prefixes that sequences with one new token share, in i32:
//
//   prefixes[sequences, 2]: of each sequence the position at which its own keys begin, a multiple
//     of a page's tokens, and the number of parts that the keys before it are computed in
//   prefix_tiles[prefix_tiles, 4 + members]: what a block computes, the keys of some pages for some
//     sequences: the first column in the tables of pages, how many columns, the number of the part,
//     how many sequences, and their numbers. Tables of these agree up to the last of the pages, and
//     the pages are full. A tile of no sequences is nobody's.
#pragma once

#include <cstdint>

namespace gpt2c::rt {

namespace ports {
/// Of sequences.
inline constexpr char prefixes[] = "prefixes";
/// Of tiles; also the symbol that counts them.
inline constexpr char prefixTiles[] = "prefix_tiles";
} // namespace ports

/// Words of a tile in front of its sequences.
inline constexpr int32_t prefixTileHead = 4;
/// Parts of a sequence's keys at most.
inline constexpr int32_t mostPrefixParts = 8;

} // namespace gpt2c::rt

// Matrices of bf16 in 12 bits an element, without loss.
//
// Of the 8 bits of an exponent the elements of a row use few: nearly all that are near each other
// lie within 16. So each has its sign and mantissa in a byte and four bits of a code, and `group`
// elements of a row share a word that says what the codes count from:
//
//   x = (-1)^s 1.m 2^(code - 15) 2^(f - 127)     exponent bits code + f - 15
//
// with f in bits 24 to 31 of the word; f = 0: all of the group are zeros with a sign. An element
// whose exponent does not fit is an exception. Where a group has one, bits 16 to 23 of its word are
// its place in the group and bits 0 to 15 the element. If the exponent bits of these are all ones
// they are none, and the 16 bits sign, mantissa, place are n: 0, there is no exception, or entry
// n - 1 of the list is the group's first one, and the others follow. An entry is a word: the
// element, the place from bit 16 on, and in bit 31 whether it is the group's last.
//
// Bytes of [rows, columns]: the rows, one behind the other, of blocks of 32 elements, 48 bytes
// each: 32 bytes of sign and mantissa, then four words with the codes of 8 elements each, that of
// element e in the four bits from codeBit(e) on, around the end of the word. Then the list, its
// last entry first, and then the words, columns / group for each row: entry i is the word 1 + i
// ahead of the first of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace gpt2c::rt {

struct PackedShape {
  static constexpr uint64_t block = 32, blockBytes = 48, mostGroup = 256;

  uint64_t rows = 0, columns = 0, group = 0;

  /// Nothing of what is no matrix of whole blocks.
  static std::optional<PackedShape> of(std::span<const int64_t> shape);

  uint64_t rowBytes() const { return columns / block * blockBytes; }
  uint64_t words() const { return rows * (columns / group); }
  /// Without the list.
  uint64_t leastBytes() const { return rows * rowBytes() + words() * 4; }
  /// Where the words are, of so many bytes.
  uint64_t wordsAt(uint64_t bytes) const { return bytes - words() * 4; }
  /// Whether such a matrix may have so many bytes.
  bool mayHave(uint64_t bytes) const;
  /// Elements of two neighbours are 16 bits apart, where a pair of bf16 has its exponents.
  static constexpr int codeBit(int e) {
    constexpr int ofPair[] = {7, 11, 3, 15};
    return (ofPair[e / 2] + 16 * (e % 2)) % 32;
  }
};

/// The offset of a weight that is made of another: a reader that passes over Weight.packed refuses
/// it.
constexpr uint64_t kUnpackedOffset = ~uint64_t(0xff);
/// Entries of a list at most, so that a word has the number of each.
constexpr size_t kMostListed = 0xffff;

/// The bytes of a matrix; nothing where more than kMostListed elements would be in its list, or it
/// would be that of more than one group of 256: readers wait for those.
std::optional<std::vector<std::byte>> packWeight(const PackedShape &shape,
                                                 std::span<const uint16_t> elements);

/// What was packed: two bytes an element. Entries outside of the list are none. `bytes` are as many
/// as shape.mayHave().
void unpackWeight(const PackedShape &shape, std::span<const std::byte> bytes,
                  std::span<std::byte> to);

} // namespace gpt2c::rt

// Byte-pair encoding of one word: as long as some adjacent pair of tokens has a merge, apply the
// merge of lowest rank, the leftmost first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace gpt2c::rt {

/// Two adjacent tokens and the one they become. A merge's index is its rank; low ranks come first.
struct Merge {
  std::int32_t left, right, result;
  bool operator==(const Merge &) const = default;
};

class Bpe {
public:
  /// Memory that encode reuses from word to word. One per thread.
  struct Scratch {
    struct Symbol {
      std::int32_t token; // -1 once merged into its left neighbour
      std::size_t previous, next;
    };
    struct Candidate {
      std::uint32_t rank;
      std::size_t position;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  /// `byteTokens[b]` is the token of the single byte b. Pairs must be distinct.
  Bpe(const std::array<std::int32_t, 256> &byteTokens, std::vector<Merge> merges);

  /// Appends the tokens of `word` to `tokens`, in time O(n log n). Thread-safe.
  void encode(std::string_view word, Scratch &scratch, std::vector<std::int32_t> &tokens) const;

  std::span<const Merge> merges() const { return merges_; }

private:
  static constexpr std::uint32_t kNoRank = UINT32_MAX;

  std::uint32_t rank(std::int32_t left, std::int32_t right) const;
  std::size_t slot(std::int32_t left, std::int32_t right) const;

  std::array<std::int32_t, 256> byteTokens_;
  std::vector<Merge> merges_;
  // Ranks by hash of their pair, open addressing with linear probing; the size is a power of two
  // and at least twice the number of merges.
  std::vector<std::uint32_t> ranks_;
};

} // namespace gpt2c::rt

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
      std::uint32_t previous, next;
    };
    struct Candidate {
      std::uint32_t rank, position;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;

    void begin() { symbols.clear(); }
    void add(std::int32_t token) {
      const auto at = std::uint32_t(symbols.size());
      symbols.push_back({token, at - 1, at + 1});
    }
  };

  /// Pairs must be distinct. `merges` must outlive this.
  explicit Bpe(std::span<const Merge> merges);

  /// Merges the tokens that were added to `scratch` since begin(), and appends what they become to
  /// `tokens`, in time O(n log n). Thread-safe.
  void encode(Scratch &scratch, std::vector<std::int32_t> &tokens) const;

private:
  static constexpr std::uint32_t kNoRank = UINT32_MAX;

  std::uint32_t rank(std::int32_t left, std::int32_t right) const;
  std::size_t slot(std::int32_t left, std::int32_t right) const;

  std::span<const Merge> merges_;
  // Ranks by hash of their pair, open addressing with linear probing; the size is a power of two
  // and at least twice the number of merges. The pair lies beside its rank.
  struct Slot {
    std::int32_t left, right;
    std::uint32_t rank = kNoRank;
  };
  std::vector<Slot> slots_;
};

} // namespace gpt2c::rt

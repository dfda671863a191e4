// Unigram segmentation of one word: the tokens whose scores have the largest sum.
#pragma once

#include "runtime/text/tokenizer/Trie.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2c::rt {

class Unigram {
public:
  /// Memory that encode reuses from word to word. One per thread.
  struct Scratch {
    struct Node {
      double score = 0;
      std::int32_t token = 0;
      std::uint32_t begin = kNowhere; // of the token that ends here
    };
    std::vector<Node> nodes; // by byte
  };
  /// A token of a word, or characters without one (token < 0).
  struct Piece {
    std::uint32_t begin, end;
    std::int32_t token;
  };

  /// `texts` with their tokens, scores by token. A character that is no token scores 10 less than
  /// the token that scores least. The text of the token `unknown` counts as characters without one.
  Unigram(std::vector<std::pair<std::string_view, std::int32_t>> texts, std::vector<double> scores,
          std::int32_t unknown);

  /// Sets `pieces` to what `word` becomes, in time O(n times the longest token). Characters without
  /// a token that touch are one piece where `fuse`. Thread-safe.
  void encode(std::string_view word, bool fuse, Scratch &scratch, std::vector<Piece> &pieces) const;

  /// The token of this text, -1: none.
  std::int32_t find(std::string_view text) const;

private:
  static constexpr std::uint32_t kNowhere = UINT32_MAX;

  Trie trie_;
  std::vector<double> scores_;
  double unknownScore_ = 0;
  std::int32_t unknown_;
};

} // namespace gpt2c::rt

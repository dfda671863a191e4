// Finds added tokens in text: the leftmost, and of those that begin there the longest.
#pragma once

#include "runtime/text/tokenizer/TokenizerModel.h"
#include "runtime/text/tokenizer/Trie.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpt2c::rt {

class AddedTokens {
public:
  /// A stretch of text: a token, or what lies between tokens (token < 0).
  struct Stretch {
    std::size_t begin, end;
    std::int32_t token;
  };

  AddedTokens() = default;
  /// Contents, not empty, with the index of their token in `tokens`, which must outlive this.
  AddedTokens(const std::vector<TokenizerModel::AddedToken> &tokens,
              std::vector<std::pair<std::string_view, std::int32_t>> contents)
      : tokens_(&tokens), trie_(std::move(contents)) {}

  /// Appends the stretches of `text`, which cover it, to `out`. Special tokens are skipped unless
  /// `allowSpecial`. Thread-safe.
  void cut(std::string_view text, bool allowSpecial, std::vector<Stretch> &out) const;

private:
  /// The longest entry that text[at..] begins with: its length and token; a length of 0: none.
  std::pair<std::size_t, std::int32_t> longest(std::string_view text, std::size_t at) const;

  const std::vector<TokenizerModel::AddedToken> *tokens_ = nullptr;
  Trie trie_;
};

} // namespace gpt2c::rt

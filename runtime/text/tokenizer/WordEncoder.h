// Words to tokens, by the vocabulary and the merges or scores of a tokenizer.
#pragma once

#include "runtime/text/tokenizer/Bpe.h"
#include "runtime/text/tokenizer/TokenizerModel.h"
#include "runtime/text/tokenizer/Unigram.h"
#include "runtime/text/tokenizer/Vocabulary.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2c::rt {

class WordEncoder {
public:
  /// Memory that encode reuses from word to word. One per thread.
  struct Scratch {
    Bpe::Scratch bpe;
    Unigram::Scratch unigram;
    std::vector<Unigram::Piece> pieces;
    std::string text;
  };

  /// The model must outlive this.
  explicit WordEncoder(const TokenizerModel &model);

  /// Appends the tokens of `word`, in time O(n log n). Thread-safe.
  void encode(std::string_view word, Scratch &scratch, std::vector<std::int32_t> &tokens) const;

  /// The same without a look at which words are one token (Token::Whole).
  void encodeAnew(std::string_view word, Scratch &scratch, std::vector<std::int32_t> &tokens) const;

  /// Whether each byte has a token.
  bool knowsAllBytes() const;

private:
  void addBytes(std::string_view word, Bpe::Scratch &scratch) const;
  void addCharacters(std::string_view word, Scratch &scratch) const;
  bool addFallback(std::string_view text, Bpe::Scratch &scratch) const;
  void encodeUnigram(std::string_view word, Scratch &scratch,
                     std::vector<std::int32_t> &tokens) const;
  std::int32_t characterToken(std::string_view character) const;
  bool fallsBack(std::string_view text) const;

  const TokenizerModel &model_;
  Vocabulary vocabulary_;
  Bpe bpe_;
  std::optional<Unigram> unigram_;
  /// Of each byte: the token of its text where words are bytes, else <0xNN>; -1: there is none.
  std::array<std::int32_t, 256> byteTokens_{};
  std::array<std::int32_t, 128> asciiTokens_{};
};

} // namespace gpt2c::rt

// The data of a byte-level BPE tokenizer, apart from the indexes that make it fast. Readers of
// every format produce one; what they produce has been checked.
#pragma once

#include "runtime/Status.h"
#include "runtime/text/Bpe.h"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2c::rt {

struct TokenizerModel {
  enum Flags : std::uint8_t {
    Whole = 1,   // byte-pair encoding turns the token's bytes into this one token
    Added = 2,   // found in the text before it is cut into words
    Special = 4, // an added token that is found only on request
  };
  struct Token {
    std::string bytes; // empty where no token has this id
    std::uint8_t flags = 0;
    bool operator==(const Token &) const = default;
  };

  std::vector<Token> tokens; // by id
  std::array<std::int32_t, 256> byteTokens{};
  std::vector<Merge> merges; // by rank
  std::int32_t eos = -1;

  bool operator==(const TokenizerModel &) const = default;

  /// Reports the first broken rule of those that encode and decode rely on: ids in range, a token
  /// for every byte, merges with distinct pairs whose result's bytes are those of the pair. With
  /// them decode(encode(x)) == x holds for all byte strings.
  Status check() const;

  /// The format of serialize(), a compact form for a section of a plan:
  ///   "G2CT", then unsigned LEB128 numbers in their shortest form and raw bytes:
  ///   version; number of tokens, for each its flags, length, bytes; 256 byte tokens;
  ///   number of merges, for each left, right, result; eos + 1.
  /// Equal models give equal bytes. parse() takes untrusted input and accepts only what
  /// serialize() writes.
  std::string serialize() const;
  static Result<TokenizerModel> parse(std::span<const std::uint8_t> blob);

  /// Reads tokenizer.json (Hugging Face), or vocab.json and merges.txt, from a folder; or one
  /// tokenizer.json by its own path. Flags hold Added and Special only.
  static Result<TokenizerModel> read(const std::string &path);
};

} // namespace gpt2c::rt

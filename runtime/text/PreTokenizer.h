// Cuts text into the words that byte-pair merges never cross: GPT-2's regular expression,
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// with the character classes of Unicode 16 and \s the property White_Space (so U+0085 and U+00A0
// are spaces, U+001C..U+001F and U+180E are not), as the `tokenizers` crate has them.
#pragma once

#include "runtime/Status.h"

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

namespace gpt2c::rt {

class PreTokenizer {
public:
  static Result<PreTokenizer> create();

  PreTokenizer(PreTokenizer &&) noexcept;
  PreTokenizer &operator=(PreTokenizer &&) noexcept;
  ~PreTokenizer();

  /// Sets `ends` to the end offsets of the words of `text`, which cover it without gaps. A byte
  /// that belongs to no well-formed UTF-8 sequence counts as one symbol (neither space, letter nor
  /// number), just as U+FFFD in its place would. Thread-safe.
  void split(std::string_view text, std::vector<std::size_t> &ends) const;

private:
  struct Regex;
  explicit PreTokenizer(std::unique_ptr<Regex> regex);

  std::unique_ptr<Regex> regex_;
};

} // namespace gpt2c::rt

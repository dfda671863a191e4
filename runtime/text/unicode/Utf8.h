// Well-formed UTF-8 as Unicode defines it (table 3-7): no surrogates, no overlong forms, nothing
// above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gpt2c::rt {

/// Length (1 to 4) of the well-formed sequence that `text` begins with; 0 when there is none.
std::size_t utf8SequenceLength(std::string_view text);

bool isUtf8(std::string_view text);

/// Number of bytes (0 to 3) at the end of `text` that more bytes could complete to a well-formed
/// sequence.
std::size_t utf8IncompleteTail(std::string_view text);

/// A character and how many bytes it takes. A byte that belongs to no well-formed sequence is a
/// character of its own, U+FFFD with one byte.
struct CodePoint {
  char32_t value;
  std::uint8_t length;
  bool valid; ///< false for such a byte
};

/// The character at `at` < text.size().
CodePoint codePointAt(std::string_view text, std::size_t at);

/// Appends the UTF-8 of a character that is no surrogate and at most U+10FFFF.
void appendUtf8(std::string &text, char32_t character);

} // namespace gpt2c::rt

// What Unicode says of single characters, and its normal forms. By utf8proc, with what later
// versions of Unicode added where the classes of a tokenizer ask for it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gpt2c::rt {

bool isWhiteSpace(char32_t c);  ///< the property White_Space
bool isNumeric(char32_t c);     ///< general category N
bool isMark(char32_t c);        ///< general category M
bool isPunctuation(char32_t c); ///< general category P, and ASCII's symbols
/// Alphabetic, M, Nd, Pc, and what joins characters.
bool isWord(char32_t c);

/// Appends the lower case of `c`, by the character alone (no rule for a final sigma).
void appendLower(std::string &out, char32_t c);

/// The same for the upper case; a character whose upper case is two stays, but for the German ß.
void appendUpper(std::string &out, char32_t c);
bool isLetter(char32_t c); ///< general category L

enum class NormalForm : std::uint8_t { Nfc, Nfd, Nfkc, Nfkd };

/// `text` in a normal form, in time O(n log n) for any text. Bytes that belong to no well-formed
/// sequence stay as they are.
std::string normalForm(std::string_view text, NormalForm form);

/// The length in bytes of the extended grapheme cluster that `text`, which is not empty, begins
/// with.
std::size_t graphemeLength(std::string_view text);

} // namespace gpt2c::rt

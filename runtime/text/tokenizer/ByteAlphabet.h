// The byte-level alphabet of GPT-2's tokenizer: every byte has one printable character. Bytes that
// are printable in Latin-1 stand for themselves; the others take U+0100, U+0101, ... in ascending
// order.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gpt2c::rt::alphabet {

/// The UTF-8 form of the byte's character.
const std::string &character(unsigned char byte);

/// Each byte of `bytes` as its character.
std::string characters(std::string_view bytes);

/// The bytes that the characters of `text` stand for; none where one is outside of the alphabet.
std::optional<std::string> bytes(std::string_view text);

} // namespace gpt2c::rt::alphabet

#include "runtime/text/tokenizer/ByteAlphabet.h"

#include "runtime/text/unicode/Utf8.h"

#include <array>
#include <cstdint>

namespace gpt2c::rt::alphabet {
namespace {

struct Tables {
  std::array<int, 0x144> bytes; // of each character, -1: outside of the alphabet
  std::array<std::string, 256> characters;

  Tables() {
    bytes.fill(-1);
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      const int character = printable ? byte : next++;
      bytes[std::size_t(character)] = byte;
      appendUtf8(characters[std::size_t(byte)], char32_t(character));
    }
  }
};

const Tables &tables() {
  static const Tables made;
  return made;
}

} // namespace

const std::string &character(unsigned char byte) { return tables().characters[byte]; }

std::string characters(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes)
    out += character(std::uint8_t(byte));
  return out;
}

std::optional<std::string> bytes(std::string_view text) {
  const auto &known = tables().bytes;
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = codePointAt(text, at);
    if (c.value >= known.size() || known[c.value] < 0)
      return std::nullopt;
    out.push_back(char(known[c.value]));
    at += c.length;
  }
  return out;
}

} // namespace gpt2c::rt::alphabet

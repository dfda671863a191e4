#include "runtime/text/unicode/Utf8.h"

#include <algorithm>
#include <cstring>

namespace gpt2c::rt {
namespace {

/// What a lead byte asks for: the length of its sequence and the range of the second byte. Bytes
/// from the third on are 80..BF. A length of 0 marks a byte that cannot lead.
struct Lead {
  std::uint8_t length, low, high;
};

Lead classifyLead(std::uint8_t byte) {
  if (byte < 0x80)
    return {1, 0, 0};
  if (byte < 0xC2)
    return {0, 0, 0};
  if (byte < 0xE0)
    return {2, 0x80, 0xBF};
  if (byte < 0xF0)
    return {3, std::uint8_t(byte == 0xE0 ? 0xA0 : 0x80), std::uint8_t(byte == 0xED ? 0x9F : 0xBF)};
  if (byte < 0xF5)
    return {4, std::uint8_t(byte == 0xF0 ? 0x90 : 0x80), std::uint8_t(byte == 0xF4 ? 0x8F : 0xBF)};
  return {0, 0, 0};
}

/// Number of leading bytes of `text` that fit one sequence led by text[0].
std::size_t matchingPrefix(std::string_view text, const Lead &lead) {
  std::size_t count = 1;
  for (; count < std::min<std::size_t>(text.size(), lead.length); ++count) {
    std::uint8_t byte = text[count];
    std::uint8_t low = count == 1 ? lead.low : 0x80, high = count == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high)
      break;
  }
  return count;
}

} // namespace

std::size_t utf8SequenceLength(std::string_view text) {
  if (text.empty())
    return 0;
  Lead lead = classifyLead(text[0]);
  return lead.length && matchingPrefix(text, lead) == lead.length ? lead.length : 0;
}

bool isUtf8(std::string_view text) {
  while (!text.empty()) {
    std::uint64_t eight;
    if (text.size() >= sizeof(eight)) {
      std::memcpy(&eight, text.data(), sizeof(eight));
      if ((eight & 0x8080808080808080ull) == 0) {
        text.remove_prefix(sizeof(eight));
        continue;
      }
    }
    std::size_t length = utf8SequenceLength(text);
    if (length == 0)
      return false;
    text.remove_prefix(length);
  }
  return true;
}

std::size_t utf8IncompleteTail(std::string_view text) {
  for (std::size_t count = 1; count <= std::min<std::size_t>(3, text.size()); ++count) {
    std::string_view tail = text.substr(text.size() - count);
    Lead lead = classifyLead(tail[0]);
    if (lead.length > count && matchingPrefix(tail, lead) == count)
      return count;
  }
  return 0;
}

CodePoint codePointAt(std::string_view text, std::size_t at) {
  const std::uint8_t lead = text[at];
  if (lead < 0x80)
    return {lead, 1, true};
  const std::size_t length = utf8SequenceLength(text.substr(at, 4));
  if (length == 0)
    return {0xFFFD, 1, false};
  char32_t value = lead & (0x7F >> length);
  for (std::size_t i = 1; i < length; ++i)
    value = value << 6 | (std::uint8_t(text[at + i]) & 0x3F);
  return {value, std::uint8_t(length), true};
}

void appendUtf8(std::string &text, char32_t character) {
  if (character < 0x80) {
    text.push_back(char(character));
    return;
  }
  const int more = character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
  text.push_back(char((0xFF00 >> (more + 1)) | (character >> 6 * more)));
  for (int i = more - 1; i >= 0; --i)
    text.push_back(char(0x80 | (character >> 6 * i & 0x3F)));
}

} // namespace gpt2c::rt

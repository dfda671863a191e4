#include "runtime/text/unicode/Utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace gpt2c::rt {
namespace {

// Every string of up to 4 bytes from the borders of the ranges, against the definition: decode the
// bits, then check range, surrogates and shortest form.
std::size_t referenceLength(std::string_view text) {
  static constexpr unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
  unsigned lead = std::uint8_t(text[0]);
  std::size_t length = lead < 0x80       ? 1
                       : lead >> 5 == 6  ? 2
                       : lead >> 4 == 14 ? 3
                       : lead >> 3 == 30 ? 4
                                         : 0;
  if (length == 0 || text.size() < length)
    return 0;
  unsigned code = length == 1 ? lead : lead & (0x7F >> length);
  for (std::size_t i = 1; i < length; ++i) {
    unsigned byte = std::uint8_t(text[i]);
    if ((byte & 0xC0) != 0x80)
      return 0;
    code = code << 6 | (byte & 0x3F);
  }
  bool good = code >= least[length] && code < 0x110000 && (code < 0xD800 || code >= 0xE000);
  return good ? length : 0;
}

TEST(Utf8Test, SequenceLength) {
  static constexpr unsigned char bytes[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                                            0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE,
                                            0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF};
  constexpr std::size_t n = std::size(bytes);
  EXPECT_EQ(utf8SequenceLength(""), 0u);
  for (std::size_t i = 0; i < n * n * n * n; ++i) {
    const char text[] = {char(bytes[i % n]), char(bytes[i / n % n]), char(bytes[i / n / n % n]),
                         char(bytes[i / n / n / n])};
    for (std::size_t size = 1; size <= 4; ++size) {
      std::string_view view(text, size);
      ASSERT_EQ(utf8SequenceLength(view), referenceLength(view)) << testing::PrintToString(view);
    }
  }
}

TEST(Utf8Test, Validity) {
  EXPECT_TRUE(isUtf8(""));
  EXPECT_TRUE(isUtf8("plain text longer than a word, é, 中, 🦙, and \0 too"));
  for (std::size_t at = 0; at < 24; ++at) {
    std::string text(24, 'x');
    text[at] = '\x80';
    EXPECT_FALSE(isUtf8(text)) << at;
    text[at] = '\xC3';
    EXPECT_FALSE(isUtf8(text)) << at;
  }
}

TEST(Utf8Test, IncompleteTail) {
  EXPECT_EQ(utf8IncompleteTail(""), 0u);
  EXPECT_EQ(utf8IncompleteTail("a"), 0u);
  EXPECT_EQ(utf8IncompleteTail("a\xC3"), 1u);
  EXPECT_EQ(utf8IncompleteTail("\xC3\xA9"), 0u);
  EXPECT_EQ(utf8IncompleteTail("a\xE4\xB8"), 2u);
  EXPECT_EQ(utf8IncompleteTail("a\xF0\x9F\xA6"), 3u);
  EXPECT_EQ(utf8IncompleteTail("\xF0\x9F\xA6\x99"), 0u);
  EXPECT_EQ(utf8IncompleteTail("\xED\xA0"), 0u); // only a surrogate begins so
  EXPECT_EQ(utf8IncompleteTail("\xC0"), 0u);     // only an overlong form does
  EXPECT_EQ(utf8IncompleteTail("\xF4\x90"), 0u); // above U+10FFFF
  EXPECT_EQ(utf8IncompleteTail("\x80\x80"), 0u);
  EXPECT_EQ(utf8IncompleteTail("\xE4\xF0"), 1u);
}

} // namespace
} // namespace gpt2c::rt

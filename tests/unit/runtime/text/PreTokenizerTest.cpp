#include "runtime/text/tokenizer/PreTokenizer.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <map>
#include <string>

namespace gpt2c::rt {
namespace {

class PreTokenizerTest : public ::testing::Test {
protected:
  std::vector<std::string> words(std::string_view text) {
    static const TokenizerStep gpt2 = {
        TokenizerStep::Kind::SplitRegex, TokenizerStep::Isolated, std::string(kGpt2Pattern), {}};
    static const Result<PreTokenizer> preTokenizer = PreTokenizer::create({&gpt2, 1});
    static rt::Words found;
    preTokenizer->split(text, true, found);
    std::vector<std::string> result;
    std::size_t begin = 0;
    for (const auto &word : found.words()) {
      EXPECT_EQ(word.begin, begin);
      EXPECT_GT(word.end, begin);
      result.emplace_back(text.substr(begin, word.end - begin));
      begin = word.end;
    }
    EXPECT_EQ(begin, text.size());
    return result;
  }
  using Words = std::vector<std::string>;
};

std::string utf8(unsigned c) {
  if (c < 0x80)
    return {char(c)};
  if (c < 0x800)
    return {char(0xC0 | c >> 6), char(0x80 | (c & 63))};
  if (c < 0x10000)
    return {char(0xE0 | c >> 12), char(0x80 | (c >> 6 & 63)), char(0x80 | (c & 63))};
  return {char(0xF0 | c >> 18), char(0x80 | (c >> 12 & 63)), char(0x80 | (c >> 6 & 63)),
          char(0x80 | (c & 63))};
}

TEST_F(PreTokenizerTest, Words) {
  EXPECT_EQ(words(""), Words{});
  EXPECT_EQ(words("Hello, world 42!"), (Words{"Hello", ",", " world", " 42", "!"}));
  EXPECT_EQ(words("it's we'll I'm 'S"), (Words{"it", "'s", " we", "'ll", " I", "'m", " '", "S"}));
  EXPECT_EQ(words("a  b"), (Words{"a", " ", " b"}));
  EXPECT_EQ(words("a \n\n b \n"), (Words{"a", " \n\n", " b", " \n"}));
  EXPECT_EQ(words("a\u00A0b"), (Words{"a", "\u00A0", "b"}));
  EXPECT_EQ(words("x² ½中文"), (Words{"x", "²", " ½", "中文"}));
}

TEST_F(PreTokenizerTest, InvalidBytesAreSymbols) {
  EXPECT_EQ(words("a\xFF"
                  "b"),
            (Words{"a", "\xFF", "b"}));
  EXPECT_EQ(words(" \xFF!\xC3 "), (Words{" \xFF!\xC3", " "}));
  EXPECT_EQ(words("  \x80"), (Words{" ", " \x80"}));
  EXPECT_EQ(words("\xE4\xB8\xE4\xB8\xAD"), (Words{"\xE4\xB8", "\xE4\xB8\xAD"}));
}

// The expected hash and counts come from the `tokenizers` package, version 0.23.3 (Unicode 16).
TEST_F(PreTokenizerTest, ClassOfEveryCodePoint) {
  std::string classes;
  std::map<char, int> counts;
  for (unsigned c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000)
      continue;
    char kind = words("a" + utf8(c)).size() == 1   ? 'L'
                : words("1" + utf8(c)).size() == 1 ? 'N'
                : words("!" + utf8(c)).size() == 1 ? 'S'
                                                   : 'W';
    classes += kind;
    ++counts[kind];
  }
  EXPECT_EQ(counts, (std::map<char, int>{{'L', 141028}, {'N', 1911}, {'S', 969100}, {'W', 25}}));
  EXPECT_EQ(XXH3_64bits(classes.data(), classes.size()), 0x15A76E47E163B30Dull);
}

} // namespace
} // namespace gpt2c::rt

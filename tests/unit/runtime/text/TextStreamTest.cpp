#include "runtime/text/TextStream.h"
#include "runtime/text/unicode/Utf8.h"

#include <gtest/gtest.h>

#include <random>

namespace gpt2c::rt {
namespace {

TEST(TextStreamTest, CharactersComeWhole) {
  TextStream stream;
  EXPECT_EQ(stream.push("a\xE2\x82"), "a");
  EXPECT_EQ(stream.push("\xAC!"), "\xE2\x82\xAC!");
  EXPECT_EQ(stream.push("\xF0\x9F"), "");
  EXPECT_EQ(stream.finish(), "\xF0\x9F");
}

TEST(TextStreamTest, StopOverSeveralTokensIsNeverShown) {
  TextStream stream({"END"});
  EXPECT_EQ(stream.push("xE"), "x");
  EXPECT_EQ(stream.push("N"), "");
  EXPECT_FALSE(stream.stopped());
  EXPECT_EQ(stream.push("D y"), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.push("more"), "");
}

TEST(TextStreamTest, PartOfAStopThatWasNoneIsShown) {
  TextStream stream({"aab"});
  EXPECT_EQ(stream.push("aa"), "");
  EXPECT_EQ(stream.push("a"), "a"); // "aa" may still begin "aab"
  EXPECT_EQ(stream.push("c"), "aac");
  EXPECT_FALSE(stream.stopped());
}

TEST(TextStreamTest, TheStopThatBeginsFirstCuts) {
  TextStream stream({"c", "bcd"});
  EXPECT_EQ(stream.push("abcd"), "a");
  EXPECT_EQ(stream.stopIndex(), 1);
}

TEST(TextStreamTest, EmptyStopsDoNotStop) {
  TextStream stream({""});
  EXPECT_EQ(stream.push("abc"), "abc");
  EXPECT_FALSE(stream.stopped());
}

// Random tokens and stops over few letters, so that partial matches abound: what was streamed is
// the whole text cut where the first stop begins, no piece ends inside a character that the text
// completes, and the token that stops is the first after which the text holds a stop.
TEST(TextStreamTest, StreamedTextIsTheCutText) {
  std::mt19937_64 random(11);
  const std::string letters[] = {"a", "b", "\xC3", "\xA4", "\xE2\x82", "\xAC", "ab", "\xF0", ""};
  auto word = [&](unsigned most) {
    std::string out;
    for (unsigned n = random() % (most + 1); n > 0; --n)
      out += letters[random() % std::size(letters)];
    return out;
  };
  for (int round = 0; round < 100000; ++round) {
    std::vector<std::string> stops, tokens;
    for (unsigned n = random() % 4; n > 0; --n)
      stops.push_back(word(4));
    for (unsigned n = random() % 12; n > 0; --n)
      tokens.push_back(word(3));
    auto cut = [&](const std::string &text) {
      size_t at = std::string::npos;
      for (const std::string &s : stops)
        if (!s.empty())
          at = std::min(at, text.find(s));
      return at;
    };
    TextStream stream(stops);
    std::string shown, text;
    for (const std::string &t : tokens) {
      text += t;
      shown += stream.push(t);
      ASSERT_EQ(stream.stopped(), cut(text) != std::string::npos);
      ASSERT_EQ(text.compare(0, shown.size(), shown), 0);
      if (stream.stopped())
        break;
      // What is shown ends inside a character only where the bytes behind it break that one.
      if (size_t tail = utf8IncompleteTail(shown)) {
        std::string_view rest = std::string_view(text).substr(shown.size() - tail);
        ASSERT_EQ(utf8SequenceLength(rest), 0u);
        ASSERT_LT(utf8IncompleteTail(rest), rest.size());
      }
    }
    std::string end = stream.stopped() ? "" : stream.finish();
    ASSERT_EQ(shown + end, text.substr(0, cut(text)));
  }
}

} // namespace
} // namespace gpt2c::rt

#include "runtime/text/tokenizer/Tokenizer.h"

#include "TokenizerToy.h"

#include <gtest/gtest.h>

#include <iterator>
#include <random>
#include <thread>

namespace gpt2c::rt::test {
namespace {

using Ids = std::vector<std::int32_t>;

class TokenizerTest : public ::testing::Test {
protected:
  TokenizerTest() { toy.writeVocabAndMerges(folder); }
  Tokenizer load() {
    Result<Tokenizer> result = Tokenizer::fromFiles(folder.path());
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.take();
  }
  Toy toy;
  TemporaryFolder folder;
};

TEST_F(TokenizerTest, MergesByRankNotFromTheLeft) {
  Tokenizer tokenizer = load();
  EXPECT_EQ(tokenizer.encode("hello"), Ids{toy.id("hello")});
  EXPECT_EQ(tokenizer.encode("hello hello"), (Ids{toy.id("hello"), toy.id("Ġhello")}));
  // "l l" has a lower rank than "h e", and "ab" a lower one than "bc".
  EXPECT_EQ(tokenizer.encode("hellll"), (Ids{toy.id("hell"), toy.id("ll")}));
  EXPECT_EQ(tokenizer.encode("abcbc"), (Ids{toy.id("abc"), toy.id("bc")}));
  // Equal ranks merge the leftmost pair first.
  EXPECT_EQ(tokenizer.encode("lll"), (Ids{toy.id("ll"), 'l'}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
}

TEST_F(TokenizerTest, MergesStayInsideWords) {
  Tokenizer tokenizer = load();
  // The cut at ".", a symbol, keeps "he" and "ll" apart.
  EXPECT_EQ(tokenizer.encode("he.ll"), (Ids{toy.id("he"), '.', toy.id("ll")}));
  // All spaces but the last stand alone; the last joins the word.
  EXPECT_EQ(tokenizer.encode("   hello"), (Ids{' ', ' ', toy.id("Ġhello")}));
  EXPECT_EQ(tokenizer.encode(" \nhello"), (Ids{' ', '\n', toy.id("hello")}));
}

TEST_F(TokenizerTest, TokensThatMergesDoNotReachAreNotWords) {
  toy.vocab["zz"] = toy.vocab.size(); // in the vocabulary, but no merge makes it
  toy.writeVocabAndMerges(folder);
  Tokenizer tokenizer = load();
  EXPECT_EQ(tokenizer.encode("zz"), (Ids{'z', 'z'}));
  EXPECT_EQ(tokenizer.decode(Ids{toy.id("zz")}), "zz");
}

TEST_F(TokenizerTest, InvalidUtf8LosesNothing) {
  Tokenizer tokenizer = load();
  EXPECT_EQ(tokenizer.encode("\xC3\xA9"), Ids{toy.id("Ã©")}); // é
  // A lone lead byte is a symbol, not part of the word before or after it.
  EXPECT_EQ(tokenizer.encode("he\xC3ll"), (Ids{toy.id("he"), 0xC3, toy.id("ll")}));
  // The first C3 is no part of the sequence C3 A9: a word of symbols, then a word of letters.
  EXPECT_EQ(tokenizer.encode("\xC3\xC3\xA9"), (Ids{0xC3, toy.id("Ã©")}));
  // Symbols, invalid bytes and NUL are one word, with the space before them.
  EXPECT_EQ(tokenizer.encode(std::string_view(" !\xFF\0\xA9", 5)), (Ids{' ', '!', 0xFF, 0, 0xA9}));
  // A surrogate (ED A0 80) and an overlong slash (C0 AF) are invalid, byte by byte.
  EXPECT_EQ(tokenizer.encode("\xED\xA0\x80\xC0\xAF"), (Ids{0xED, 0xA0, 0x80, 0xC0, 0xAF}));
}

TEST_F(TokenizerTest, SpecialTokensOnRequest) {
  Tokenizer tokenizer = load();
  const int eos = toy.id("<|endoftext|>");
  EXPECT_EQ(tokenizer.eosToken(), eos);
  EXPECT_EQ(tokenizer.vocabSize(), int(toy.vocab.size()));
  EXPECT_EQ(tokenizer.encode("he<|endoftext|>ll"), (Ids{toy.id("he"), eos, toy.id("ll")}));
  EXPECT_EQ(tokenizer.encode("<|endoftext|><|endoftext|>"), (Ids{eos, eos}));
  // A text ends where a special token begins: the spaces before it are its last word.
  EXPECT_EQ(tokenizer.encode("  <|endoftext|>"), (Ids{' ', ' ', eos}));
  Ids plain = tokenizer.encode("<|endoftext|>", {.allowSpecial = false});
  EXPECT_EQ(plain.size(), 13u);
  EXPECT_EQ(tokenizer.decode(plain), "<|endoftext|>");
  EXPECT_EQ(tokenizer.decode(Ids{eos}), "<|endoftext|>");
  EXPECT_EQ(tokenizer.encode("<|endoftext|"), tokenizer.encode("<|endoftext|", {false}));
}

TEST_F(TokenizerTest, DecodeSkipsIdsWithoutToken) {
  Tokenizer tokenizer = load();
  EXPECT_EQ(tokenizer.decode(Ids{'a', -1, 1 << 30, tokenizer.vocabSize(), 'b'}), "ab");
  EXPECT_EQ(tokenizer.tokenBytes(toy.id("Ġhello")), " hello");
  EXPECT_EQ(tokenizer.tokenBytes(-1), "");
}

TEST_F(TokenizerTest, StreamYieldsCompleteCharacters) {
  Tokenizer tokenizer = load();
  StreamDecoder stream(tokenizer);
  // U+1F999 over four tokens comes out with the last.
  EXPECT_EQ(stream.push('a'), "a");
  EXPECT_EQ(stream.push(0xF0), "");
  EXPECT_EQ(stream.push(0x9F), "");
  EXPECT_EQ(stream.push(0xA6), "");
  EXPECT_EQ(stream.push(0x99), "\xF0\x9F\xA6\x99");
  // What can no longer become a character comes out at once.
  EXPECT_EQ(stream.push(0xE4), "");
  EXPECT_EQ(stream.push('b'), "\xE4"
                              "b");
  EXPECT_EQ(stream.push(0xFF), "\xFF");
  EXPECT_EQ(stream.push(0xE4), "");
  EXPECT_EQ(stream.push(0xB8), "");
  EXPECT_EQ(stream.finish(), "\xE4\xB8");
  EXPECT_EQ(stream.finish(), "");
}

/// Random texts of pieces that meet every branch, and random bytes.
std::string randomText(std::mt19937 &random) {
  static const std::string pieces[] = {
      "hello",         " ",    "  ", "\n", "'ll", "'", "é", "12",       "½",      "...",
      "\xC3",          "\xFF", "中", "🦙", "a",   "b", "c", "\xF0\x9F", "\u00A0", "\u180E",
      "<|endoftext|>", "<|"};
  std::string text;
  for (int i = random() % 40; i > 0; --i)
    text += random() % 4 ? pieces[random() % std::size(pieces)] : std::string(1, char(random()));
  return text;
}

TEST_F(TokenizerTest, RoundTripOfAnyBytes) {
  Tokenizer tokenizer = load();
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string text = randomText(random);
    for (bool special : {false, true}) {
      Ids ids = tokenizer.encode(text, {special});
      ASSERT_EQ(tokenizer.decode(ids), text);
      StreamDecoder stream(tokenizer);
      std::string streamed;
      for (std::int32_t id : ids)
        streamed += stream.push(id);
      ASSERT_EQ(streamed + stream.finish(), text);
    }
  }
}

TEST_F(TokenizerTest, ConstMethodsRunInParallel) {
  Tokenizer tokenizer = load();
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 2000; ++i) {
        std::string text = randomText(random);
        wrong[t] += tokenizer.decode(tokenizer.encode(text)) != text;
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

// Quadratic time would take minutes here.
TEST_F(TokenizerTest, LongWordsTakeLinearishTime) {
  Tokenizer tokenizer = load();
  for (const char *unit : {"l", "abc", " ", "!", "\xFF", "é", "7"}) {
    std::string text;
    while (text.size() < 500000)
      text += unit;
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text + "x")), text + "x");
  }
  EXPECT_EQ(tokenizer.encode(std::string(500000, 'l')).size(), 250000u);
}

} // namespace
} // namespace gpt2c::rt::test

// The text layer alone: random tokens over a small tokenizer, against the definition at once.
#include "runtime/text/AnswerStream.h"
#include "TokenizerToy.h"
#include "tests/unit/runtime/engine/RandomModel.h"

#include <gtest/gtest.h>

#include <random>

namespace gpt2c::rt {
namespace {

class AnswerStreamTest : public ::testing::Test {
protected:
  void SetUp() override {
    test::TemporaryFolder files;
    test::Toy().writeVocabAndMerges(files);
    Result<Tokenizer> tokenizer = Tokenizer::fromFiles(files.path());
    ASSERT_TRUE(tokenizer) << tokenizer.status().message();
    tokenizer_.emplace(tokenizer.take());
  }

  int32_t idOf(const std::string &text) const { return tokenizer_->encode(text)[0]; }

  std::optional<Tokenizer> tokenizer_;
};

/// What an answer to `tokens` is, by the rules' definition.
struct Expected {
  size_t tokens = 0;
  std::string text;
  std::optional<Finish> finish;
  int32_t stopString = -1;
};

Expected define(const AnswerRules &rules, const Tokenizer &tokenizer, const Tokens &tokens) {
  Expected e;
  for (int32_t token : tokens) {
    ++e.tokens;
    const bool ends = std::ranges::count(rules.stopTokens, token) > 0;
    if ((!ends || rules.includeStop) && !std::ranges::count(rules.hiddenTokens, token))
      e.text += tokenizer.tokenBytes(token);
    size_t cut = std::string::npos;
    for (size_t i = 0; i < rules.stops.size(); ++i)
      if (const size_t at = e.text.find(rules.stops[i]); at < cut) {
        cut = at;
        e.stopString = int32_t(i);
      }
    if (e.stopString >= 0) {
      e.text.resize(cut);
      if (rules.includeStop)
        e.text += rules.stops[size_t(e.stopString)];
    }
    if (e.stopString >= 0 || ends)
      e.finish = Finish::Stop;
    else if (int64_t(e.tokens) == rules.maxTokens)
      e.finish = Finish::Length;
    else if (int64_t(e.tokens) == rules.room)
      e.finish = Finish::Context;
    if (e.finish)
      break;
  }
  return e;
}

TEST_F(AnswerStreamTest, RandomAnswersAreTheirDefinition) {
  std::mt19937_64 random(5);
  auto below = [&](size_t n) { return int(random() % n); };
  const std::vector<int32_t> &liked = test::likedTokens();
  int finishes[5] = {};
  for (int i = 0; i < 20000; ++i) {
    AnswerRules rules{.maxTokens = 1 + below(12), .room = 1 + below(12)};
    for (int n = below(3); n > 0; --n)
      rules.stopTokens.push_back(liked[size_t(below(liked.size()))]);
    for (int n = below(3); n > 0; --n)
      rules.hiddenTokens.push_back(liked[size_t(below(liked.size()))]);
    for (int n = below(3); n > 0; --n) {
      std::string stop = tokenizer_->decode(
          Tokens{liked[size_t(below(liked.size()))], liked[size_t(below(liked.size()))]});
      if (stop = stop.substr(size_t(below(2))); !stop.empty())
        rules.stops.push_back(stop);
    }
    rules.includeStop = below(2);
    Tokens tokens;
    for (int n = 12; n > 0; --n)
      tokens.push_back(liked[size_t(below(liked.size()))]);
    const Expected expected = define(rules, *tokenizer_, tokens);
    AnswerStream stream(rules, &*tokenizer_);
    std::string text;
    AnswerPiece last;
    for (size_t t = 0; t < expected.tokens; ++t) {
      ASSERT_FALSE(stream.ended());
      last = stream.push({.token = tokens[t], .logprob = -double(t)});
      ASSERT_EQ(last.choice->token, tokens[t]);
      ASSERT_EQ(last.choice->logprob, -double(t));
      text += last.text;
    }
    ASSERT_TRUE(stream.ended());
    ASSERT_EQ(last.finish, expected.finish);
    ASSERT_EQ(last.stopString, expected.stopString);
    ASSERT_EQ(last.stopToken >= 0, last.finish == Finish::Stop && last.stopString < 0);
    ASSERT_EQ(text, expected.text);
    ++finishes[int(*last.finish)];
  }
  for (Finish finish : {Finish::Length, Finish::Stop, Finish::Context})
    EXPECT_GT(finishes[int(finish)], 1000) << nameOf(finish);
}

TEST_F(AnswerStreamTest, ACallersEndGivesWhatWasHeldBack) {
  AnswerStream stream({.stops = {"abX"}}, &*tokenizer_);
  std::string text;
  for (char c : std::string("ab"))
    text += stream.push({.token = idOf(std::string(1, c))}).text;
  EXPECT_EQ(text, "");
  const AnswerPiece end = stream.end(Finish::Caller);
  EXPECT_EQ(end.text, "ab");
  EXPECT_EQ(end.finish, Finish::Caller);
  EXPECT_FALSE(end.choice);
}

TEST(AnswerStreamWithoutText, EndsByTokensAlone) {
  AnswerStream stream({.maxTokens = 3, .stopTokens = {7}}, nullptr);
  EXPECT_EQ(stream.push({.token = 1}).text, "");
  const AnswerPiece last = stream.push({.token = 7});
  EXPECT_EQ(last.finish, Finish::Stop);
  EXPECT_EQ(last.stopToken, 7);
  EXPECT_EQ(stream.tokens(), 2);
}

} // namespace
} // namespace gpt2c::rt

// Texts of generations: the same streamed or not, and what the ids say.
#include "runtime/text/TextGeneration.h"
#include "runtime/text/unicode/Utf8.h"
#include "tests/unit/runtime/engine/RandomModel.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

namespace gpt2c::rt {
namespace {

class TextGenerationTest : public ::testing::Test {
protected:
  void SetUp() override {
    Status written = test::writeRandomPlan(folder_.path("random.plan"));
    ASSERT_TRUE(written.ok()) << written.message();
    Result<Plan::Ptr> plan = Plan::open(folder_.path("random.plan"));
    ASSERT_TRUE(plan) << plan.status().message();
    plan_ = *plan;
  }

  Session session(uint64_t seed, int chunk = 1) {
    return Session(plan_, std::make_unique<test::RandomModel>(seed, chunk));
  }

  test::TemporaryFolder folder_;
  Plan::Ptr plan_;
  Tokenizer tokenizer_ = test::randomTokenizer();
};

/// A request over few letters, drawn from `random`.
struct Answers {
  std::vector<Tokens> prompts;
  TextOptions options;
  int chunk;

  explicit Answers(std::mt19937_64 &random) {
    auto below = [&](uint64_t n) { return size_t(random() % n); };
    const std::string letters[] = {"a", "b", "c", "ab", "\xC3\xA9", "\xE2\x82\xAC", "\xA9"};
    for (size_t n = 1 + below(4); n > 0; --n) { // more than the batch, too
      Tokens &prompt = prompts.emplace_back();
      for (size_t length = 1 + below(5); length > 0; --length)
        prompt.push_back(int32_t(below(256)));
    }
    for (size_t n = below(3); n > 0; --n) {
      std::string &stop = options.stops.emplace_back();
      for (size_t length = 1 + below(4); length > 0; --length)
        stop += letters[below(std::size(letters))];
    }
    GenerateOptions &g = options.generate;
    g.maxNewTokens = int64_t(1 + below(32)); // beyond the context, too
    if (below(3) == 0)
      g.stopTokens.push_back(test::likedTokens()[below(test::likedTokens().size())]);
    if (below(2) == 0)
      g.slide = int64_t(below(test::kRandomContext / 2));
    options.ignoreEos = below(2) == 0;
    if (below(2) == 0)
      for (size_t i = 0; i < prompts.size(); ++i) {
        SamplingParams &p = g.sampling.emplace_back();
        p.temperature = 0.5 + double(below(4));
        p.topP = below(2) ? 1 : 0.9;
        p.seed = random();
        p.logprobs = int32_t(below(3)) - 1;
      }
    chunk = int(1 + below(4));
  }
};

/// The text of an answer's ids as its definition has it: all at once.
std::string cutText(const Tokenizer &tokenizer, const TextAnswer &answer,
                    const std::vector<std::string> &stops) {
  Tokens ids = answer.tokens;
  if (answer.finish == Finish::Stop && answer.stop < 0)
    ids.pop_back(); // the token that says that the text ends
  std::string text = tokenizer.decode(ids);
  size_t at = std::string::npos;
  for (const std::string &stop : stops)
    at = std::min(at, text.find(stop));
  EXPECT_EQ(at != std::string::npos, answer.stop >= 0);
  return text.substr(0, at);
}

// Streamed, in one piece, alone, and from the ids: one text. CI runs the first few thousand of the
// cases, GPT2C_CASES=100000 all of them.
TEST_F(TextGenerationTest, StreamedOrNotTheTextIsThatOfTheIds) {
  const char *given = std::getenv("GPT2C_CASES");
  const int cases = given ? std::atoi(given) : 4000;
  std::mt19937_64 random(20);
  int stopped = 0, split = 0;
  for (int i = 0; i < cases; ++i) {
    Answers c(random);
    const uint64_t seed = random();
    SCOPED_TRACE("case " + std::to_string(i));
    std::vector<std::string> streamed(c.prompts.size());
    std::vector<Tokens> tokens(c.prompts.size());
    std::vector<int> ended(c.prompts.size());
    TextOptions streams = c.options;
    streams.onToken = [&](size_t s, const Choice &choice, std::string_view text) {
      EXPECT_EQ(ended[s], 0);
      split += text.empty() && !tokenizer_.tokenBytes(choice.token).empty();
      tokens[s].push_back(choice.token);
      streamed[s] += text;
      return true;
    };
    streams.onEnd = [&](size_t s, Finish, std::string_view rest) {
      ++ended[s];
      streamed[s] += rest;
    };
    Session first = session(seed, c.chunk), second = session(seed);
    Result<TextGenerated> live = generateText(first, &tokenizer_, c.prompts, streams);
    ASSERT_TRUE(live) << live.status().message();
    Result<TextGenerated> whole = generateText(second, &tokenizer_, c.prompts, c.options);
    ASSERT_TRUE(whole) << whole.status().message();
    for (size_t s = 0; s < c.prompts.size(); ++s) {
      const TextAnswer &answer = live->answers[s];
      ASSERT_EQ(ended[s], 1);
      ASSERT_EQ(streamed[s], answer.text);
      ASSERT_EQ(tokens[s], answer.tokens);
      ASSERT_EQ(answer.text, whole->answers[s].text);
      ASSERT_EQ(answer.tokens, whole->answers[s].tokens);
      ASSERT_EQ(answer.finish, whole->answers[s].finish);
      ASSERT_EQ(answer.text, cutText(tokenizer_, answer, c.options.stops));
      stopped += answer.stop >= 0;
      ASSERT_GT(answer.firstTokenSeconds, 0);
      ASSERT_GE(answer.lastTokenSeconds, answer.firstTokenSeconds);
      ASSERT_EQ(answer.tokensPerSecond().has_value(), answer.tokens.size() > 1);
    }
    TextOptions alone = c.options;
    if (!alone.generate.sampling.empty())
      alone.generate.sampling.resize(1);
    Result<TextGenerated> one =
        generateText(second, &tokenizer_, std::span(c.prompts).first(1), alone);
    ASSERT_TRUE(one) << one.status().message();
    ASSERT_EQ(one->answers[0].text, live->answers[0].text);
    ASSERT_EQ(one->answers[0].tokens, live->answers[0].tokens);
  }
  EXPECT_GT(stopped, cases / 20) << "the cases stopped nothing";
  EXPECT_GT(split, cases / 20) << "the cases held nothing back";
}

// Prompts that share beginnings with what the session has computed, or do not, some of several
// sequences, some with a window that slides: the answers of a fresh session, at the cost of what is
// new.
TEST_F(TextGenerationTest, AKeptStateChangesNothingButTheCost) {
  std::mt19937_64 random(35);
  int64_t kept = 0;
  for (int chat = 0; chat < 200; ++chat) {
    const uint64_t seed = random();
    auto backend = std::make_unique<test::RandomModel>(seed, int(1 + random() % 4));
    test::RandomModel &model = *backend;
    Session talks(plan_, std::move(backend));
    Tokens text(1 + random() % 4, int32_t('a' + random() % 3));
    for (int turn = 0; turn < 6; ++turn) {
      SCOPED_TRACE("chat " + std::to_string(chat) + ", turn " + std::to_string(turn));
      Answers c(random);
      c.options.generate.keepsState = true;
      if (random() % 4) {
        c.prompts = {text};
        if (c.options.generate.sampling.size() > 1)
          c.options.generate.sampling.resize(1);
      }
      int64_t tokens = 0;
      for (const Tokens &prompt : c.prompts)
        tokens += int64_t(prompt.size());
      const int64_t before = model.computed();
      Result<TextGenerated> next = generateText(talks, &tokenizer_, c.prompts, c.options);
      Session fresh = session(seed);
      c.options.generate.keepsState = false;
      Result<TextGenerated> anew = generateText(fresh, &tokenizer_, c.prompts, c.options);
      ASSERT_TRUE(next && anew) << next.status().message() << anew.status().message();
      for (size_t i = 0; i < c.prompts.size(); ++i)
        ASSERT_EQ(next->answers[i].tokens, anew->answers[i].tokens);
      if (c.options.generate.slide < 0 && c.prompts.size() == 1) {
        ASSERT_EQ(model.computed() - before, tokens - next->generated.keptTokens);
      }
      kept += next->generated.keptTokens;
      const Tokens &answer = next->answers[0].tokens;
      text = c.prompts[0];
      text.insert(text.end(), answer.begin(), answer.end() - int64_t(random() % answer.size()));
      text.push_back(int32_t('a' + random() % 3));
      text.resize(std::min<size_t>(text.size(), test::kRandomContext));
      if (random() % 8 == 0)
        talks.endBatch();
    }
  }
  EXPECT_GT(kept, 2000);
}

TEST_F(TextGenerationTest, TheCallerEndsASequence) {
  Session s = session(3);
  const std::vector<Tokens> prompts{{'a'}, {'b'}};
  TextOptions options;
  options.ignoreEos = true;
  options.onToken = [](size_t sequence, const Choice &, std::string_view) { return sequence == 1; };
  Result<TextGenerated> got = generateText(s, &tokenizer_, prompts, options);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->answers[0].tokens.size(), 1u);
  EXPECT_EQ(got->answers[0].finish, Finish::Caller);
  EXPECT_EQ(got->answers[1].finish, Finish::Context);
}

// What fills the context first ends first, and does not wait for the others.
TEST_F(TextGenerationTest, AnAnswerEndsWhenItsContextIsFull) {
  Session s = session(1);
  TextOptions options;
  options.ignoreEos = true;
  options.generate.maxNewTokens = 1000;
  std::vector<size_t> order;
  int behind = 0;
  options.onToken = [&](size_t sequence, const Choice &, std::string_view) {
    behind += sequence == 0 && !order.empty();
    return true;
  };
  options.onEnd = [&](size_t sequence, Finish finish, std::string_view) {
    EXPECT_EQ(finish, Finish::Context);
    order.push_back(sequence);
  };
  const std::vector<Tokens> prompts = {Tokens(1, 65), Tokens(4, 65)};
  Result<TextGenerated> made = generateText(s, &tokenizer_, prompts, options);
  ASSERT_TRUE(made) << made.status().message();
  EXPECT_EQ(order, (std::vector<size_t>{1, 0}));
  EXPECT_EQ(behind, 3);
  EXPECT_EQ(made->answers[0].tokens.size(), made->answers[1].tokens.size() + 3);
  EXPECT_EQ(made->generated.finish, (std::vector<Finish>{Finish::Context, Finish::Context}));
}

TEST_F(TextGenerationTest, StopStringsNeedATokenizer) {
  Session s = session(3);
  const std::vector<Tokens> prompts{{'a'}};
  TextOptions options;
  options.stops = {"x"};
  EXPECT_EQ(generateText(s, nullptr, prompts, options).status().code(), Code::Usage);
  options.stops = {""};
  EXPECT_EQ(generateText(s, &tokenizer_, prompts, options).status().code(), Code::Usage);
  options.stops.clear();
  Result<TextGenerated> ids = generateText(s, nullptr, prompts, options);
  ASSERT_TRUE(ids);
  EXPECT_EQ(ids->answers[0].text, "");
  EXPECT_FALSE(ids->answers[0].tokens.empty());
}

} // namespace
} // namespace gpt2c::rt

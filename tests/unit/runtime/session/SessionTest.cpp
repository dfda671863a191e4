// Session over a backend that plays a model whose next token is the last one plus one.
#include "SessionToy.h"

namespace gpt2c::rt::sessions {
namespace {

TEST_F(SessionTest, GeneratesABatchInChunks) {
  Session &s = open();
  std::vector<Tokens> prompts{{1, 2, 3}, {10}};
  std::vector<std::pair<size_t, int32_t>> seen;
  GenerateOptions options;
  options.maxNewTokens = 8;
  options.onToken = [&](size_t b, const Choice &choice) {
    seen.push_back({b, choice.token});
    return true;
  };
  Result<Generated> out = s.generate(prompts, options);
  ASSERT_TRUE(out) << out.status().message();
  EXPECT_EQ(out->tokens[0], (Tokens{4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(out->tokens[1], (Tokens{11, 12, 13, 14, 15, 16, 17, 18}));
  EXPECT_EQ(backend_->decodes, (std::vector<int>{4, 3}));
  EXPECT_EQ(out->decodeSteps, 7);
  EXPECT_EQ(seen.size(), 16u);
  EXPECT_EQ(seen[0], (std::pair<size_t, int32_t>(0, 4)));
  EXPECT_EQ(seen[1], (std::pair<size_t, int32_t>(1, 11)));
  EXPECT_EQ(s.lengths()[0], 10); // the last token is not in the state
}

TEST_F(SessionTest, SequencesStopOnTheirOwn) {
  Session &s = open();
  std::vector<Tokens> prompts{{1}, {4}};
  GenerateOptions options;
  options.maxNewTokens = 10;
  options.stopTokens = {6};
  Result<Generated> out = s.generate(prompts, options);
  ASSERT_TRUE(out);
  EXPECT_EQ(out->tokens[0], (Tokens{2, 3, 4, 5, 6}));
  EXPECT_EQ(out->tokens[1], (Tokens{5, 6}));
  EXPECT_EQ(out->decodeSteps, 4); // as many as the longer one needs
  EXPECT_EQ(out->finish, (std::vector{Finish::Stop, Finish::Stop}));
  options.stopTokens = {};
  options.onToken = [](size_t b, const Choice &) { return b == 1; };
  out = s.generate(prompts, options);
  ASSERT_TRUE(out);
  EXPECT_EQ(out->tokens[0].size(), 1u);
  EXPECT_EQ(out->tokens[1].size(), 10u);
  EXPECT_EQ(out->finish, (std::vector{Finish::Caller, Finish::Length}));
}

TEST_F(SessionTest, MorePromptsThanTheBatchRunInTurn) {
  Session &s = open();
  GenerateOptions options;
  options.maxNewTokens = 2;
  Result<Generated> out = s.generate(std::vector<Tokens>{{1}, {2}, {3}, {4}, {5}}, options);
  ASSERT_TRUE(out) << out.status().message();
  EXPECT_EQ(backend_->prefills.size(), 3u);
  for (int32_t i = 0; i < 5; ++i)
    EXPECT_EQ(out->tokens[i], (Tokens{i + 2, i + 3}));
}

// Nothing runs for prompts of later groups either.
TEST_F(SessionTest, TheCallerEndsAllSequencesBetweenCalls) {
  Session &s = open();
  GenerateOptions options;
  options.maxNewTokens = 100;
  options.slide = 2;
  int asked = 0;
  options.goesOn = [&] { return ++asked <= 2; };
  Result<Generated> out = s.generate(std::vector<Tokens>{{1}, {2}, {3}, {4}, {5}}, options);
  ASSERT_TRUE(out) << out.status().message();
  EXPECT_EQ(backend_->prefills.size(), 1u);
  EXPECT_EQ(backend_->decodes.size(), 1u);
  EXPECT_EQ(out->tokens[0].size(), 5u);
  EXPECT_TRUE(out->tokens[4].empty());
  EXPECT_EQ(out->finish, std::vector<Finish>(5, Finish::Caller));
}

// One sequence fills the context of 16 and ends; the other goes on from its own tokens.
TEST_F(SessionTest, AFullContextEndsASequenceAlone) {
  Session &s = open();
  GenerateOptions options;
  options.maxNewTokens = 10;
  Result<Generated> out = s.generate(std::vector<Tokens>{Tokens(13, 1), {20}}, options);
  ASSERT_TRUE(out) << out.status().message();
  EXPECT_EQ(out->tokens[0], (Tokens{2, 3, 4, 5})); // the last one is not in the state
  EXPECT_EQ(out->tokens[1].size(), 10u);
  EXPECT_EQ(out->tokens[1].back(), 30);
  EXPECT_EQ(out->finish, (std::vector{Finish::Context, Finish::Length}));
  EXPECT_EQ(backend_->prompts, (std::vector<Tokens>{{20, 21, 22, 23, 24}}));
}

TEST_F(SessionTest, SlidingKeepsTheBeginning) {
  Session &s = open();
  GenerateOptions options;
  options.maxNewTokens = 20;
  options.slide = 2;
  Result<Generated> out = s.generate(std::vector<Tokens>{{7, 8, 1, 2, 3, 4, 5, 6, 9, 10}}, options);
  ASSERT_TRUE(out) << out.status().message();
  EXPECT_EQ(out->tokens[0].size(), 20u);
  for (int32_t i = 0; i < 20; ++i)
    EXPECT_EQ(out->tokens[0][i], 11 + i);
  EXPECT_EQ(out->finish[0], Finish::Length);
  for (const Tokens &window : backend_->prompts) {
    EXPECT_EQ(window[0], 7);
    EXPECT_EQ(window[1], 8);
    EXPECT_LE(window.size(), 16u);
  }
  options.slide = 9;
  expectUsage(s.generate(std::vector<Tokens>{{1}}, options).status(), "at most half");
}

TEST_F(SessionTest, SamplesByLogits) {
  Session &s = open();
  GenerateOptions options;
  options.maxNewTokens = 12;
  SamplingParams greedy{.logprobs = 1}, hot{.temperature = 1, .topK = 2, .seed = 5};
  options.sampling = {greedy, hot};
  std::vector<double> logprobs;
  options.onToken = [&](size_t b, const Choice &choice) {
    if (b == 0)
      logprobs.push_back(choice.logprob);
    return true;
  };
  Result<Generated> out = s.generate(std::vector<Tokens>{{1}, {1}}, options);
  ASSERT_TRUE(out) << out.status().message();
  EXPECT_EQ(out->tokens[0], (Tokens{2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}));
  double expected = 2 - std::log(std::exp(2) + std::exp(1) + kVocab - 2);
  ASSERT_EQ(logprobs.size(), 12u);
  EXPECT_NEAR(logprobs[3], expected, 1e-9);
  Tokens sampled = out->tokens[1];
  EXPECT_NE(sampled, out->tokens[0]);
  for (size_t i = 1; i < sampled.size(); ++i)
    EXPECT_LE(sampled[i] - sampled[i - 1], 2);
  // Alone and in a batch the same.
  options.sampling = {hot};
  options.onToken = {};
  EXPECT_EQ(s.generate(std::vector<Tokens>{{1}}, options)->tokens[0], sampled);
  options.sampling = {{.temperature = -1}};
  expectUsage(s.generate(std::vector<Tokens>{{1}}, options).status(), "temperature");
  options.sampling = {hot, hot, hot};
  expectUsage(s.generate(std::vector<Tokens>{{1}}, options).status(), "3 sets");
}

TEST_F(SessionTest, RefusesWhatThePlanDoesNotHold) {
  Session &s = open();
  GenerateOptions options;
  options.maxNewTokens = 4;
  expectUsage(s.prefill(std::vector<Tokens>{{1}, {2}, {3}}).status(), "--max-batch=3");
  expectUsage(s.generate(std::vector<Tokens>{}, options).status(), "no sequence");
  expectUsage(s.generate(std::vector<Tokens>{{}}, options).status(), "empty");
  expectUsage(s.generate(std::vector<Tokens>{{1, kVocab}}, options).status(), "0 to 49");
  expectUsage(s.generate(std::vector<Tokens>{{-1}}, options).status(), "is -1");
  expectUsage(s.generate(std::vector<Tokens>{Tokens(17, 1)}, options).status(), "--max-context=17");
  EXPECT_TRUE(s.generate(std::vector<Tokens>{Tokens(16, 1)}, options));
  options.maxNewTokens = 0;
  expectUsage(s.generate(std::vector<Tokens>{{1}}, options).status(), "at least one");
}

TEST_F(SessionTest, ChecksSteps) {
  Session &s = open();
  expectUsage(s.decode(1).status(), "prefill before");
  ASSERT_TRUE(s.prefill(std::vector<Tokens>{{1, 2, 3, 4}}));
  expectUsage(s.decode(0).status(), "0 steps");
  expectUsage(s.decode(13).status(), "--max-context=17");
  ASSERT_TRUE(s.decode(11));
  EXPECT_EQ(s.lengths()[0], 15);
  expectUsage(s.step(Tokens{1, 2}).status(), "2 tokens for 1 sequence");
  expectUsage(s.step(Tokens{kVocab}).status(), "0 to 49");
  Result<StepOutput> out = s.step(Tokens{20});
  ASSERT_TRUE(out);
  EXPECT_EQ(out->next, Tokens{21});
  expectUsage(s.step(Tokens{1}).status(), "--max-context=17");
}

TEST_F(SessionTest, KeepsAPrefixOfTheState) {
  Session &s = open();
  ASSERT_TRUE(s.prefill(std::vector<Tokens>{{1, 2, 3, 4}}));
  ASSERT_TRUE(s.prefill(std::vector<Tokens>{{9}}, std::vector<int32_t>{3}));
  EXPECT_EQ(backend_->prefills.back(), std::vector<int32_t>{3});
  EXPECT_EQ(s.lengths()[0], 4);
  expectUsage(s.prefill(std::vector<Tokens>{{9}}, std::vector<int32_t>{5}).status(), "holds 4");
  expectUsage(s.prefill(std::vector<Tokens>{{9}}, std::vector<int32_t>{-1}).status(), "-1");
  expectUsage(s.prefill(std::vector<Tokens>{{9}}, std::vector<int32_t>{1, 1}).status(),
              "2 sequences");
}

TEST_F(SessionTest, WhereADevicePadsThereMustBeRoomForTheLongest) {
  Session &s = open();
  ASSERT_TRUE(s.prefill(std::vector<Tokens>{{1, 2, 3, 4}, {5}}));
  const std::vector<Tokens> more{{9}, Tokens(13, 7)};
  backend_->pads = true;
  expectUsage(s.prefill(more, std::vector<int32_t>{4, 0}).status(), "a call of its own");
  ASSERT_EQ(s.lengths().size(), 2u); // what is refused has changed nothing
  EXPECT_EQ(s.lengths()[0], 4);
  EXPECT_EQ(backend_->prefills.size(), 1u);
  backend_->pads = false;
  ASSERT_TRUE(s.prefill(more, std::vector<int32_t>{4, 0}));
  EXPECT_EQ(s.lengths()[0], 5);
}

} // namespace
} // namespace gpt2c::rt::sessions

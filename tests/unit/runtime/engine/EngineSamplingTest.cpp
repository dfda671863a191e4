// Who chooses an engine's tokens, and what comes of choices that cannot be made.
#include "EngineFixture.h"

namespace gpt2c::rt {
namespace {

class EngineSamplingTest : public EngineTest {
protected:
  /// Tokens, and log probabilities where they are asked for.
  void expectAlone(RequestId id, const Request &r, const char *where) {
    const Answer &answer = answers_[id];
    ASSERT_EQ(answer.tokens, alone(r)) << id << where;
    if (r.sampling.logprobs < 0)
      return;
    GenerateOptions o;
    o.maxNewTokens = r.maxTokens;
    o.sampling = {r.sampling};
    std::vector<Choice> choices;
    o.onToken = [&](size_t, const Choice &choice) {
      choices.push_back(choice);
      return true;
    };
    ASSERT_TRUE(session_->generate(std::vector<Tokens>{r.prompt}, o));
    ASSERT_EQ(answer.choices.size(), choices.size());
    for (size_t i = 0; i < choices.size(); ++i) {
      const Choice &want = choices[i], &got = answer.choices[i];
      EXPECT_EQ(got.logprob, want.logprob) << id << where;
      ASSERT_EQ(got.top.size(), size_t(r.sampling.logprobs)) << id << where;
      for (size_t n = 0; n < got.top.size(); ++n) {
        EXPECT_EQ(got.top[n].token, want.top[n].token);
        EXPECT_EQ(got.top[n].logprob, want.top[n].logprob);
      }
    }
  }
};

TEST_F(EngineSamplingTest, SampledSequencesWaitForTheirTokens) {
  open();
  Request r = asking(range(0, 9), 15);
  r.sampling = {.temperature = 1, .topK = 8, .topP = 0.9, .seed = 11, .logprobs = 2};
  RequestId id = submit(r), greedy = submit(asking(range(5, 5), 20));
  runAll();
  EXPECT_EQ(answers_[id].tokens, alone(r));
  EXPECT_NE(answers_[id].tokens, alone(asking(r.prompt, r.maxTokens)));
  EXPECT_EQ(answers_[id].choices[4].top.size(), 2u);
  EXPECT_LT(answers_[id].choices[4].logprob, 0);
  EXPECT_EQ(answers_[greedy].tokens, alone(asking(range(5, 5), 20)));
  expectNoLeak();
}

// Greedy, sampled and penalised sequences share calls; each is what it is alone on the host, and
// none of their calls waits for the host.
TEST_F(EngineSamplingTest, TheDeviceSamplesWhereItCan) {
  const std::vector<SamplingParams> kinds = {
      {},
      {.temperature = 1, .seed = 3},
      {.temperature = 0.8, .topK = 7, .topP = 0.9, .seed = 4},
      {.temperature = 1.2, .minP = 0.02, .seed = 5},
      {.temperature = 1, .repetitionPenalty = 1.4, .presencePenalty = 0.5, .seed = 6},
      {.frequencyPenalty = 1.5}, // the largest logit, but not the model's
      {.temperature = 0.7, .logitBias = {{3, 5.0}, {7, -INFINITY}}, .seed = 7},
      {.logprobs = 3},
      {.temperature = 1, .presencePenalty = 1.0, .seed = 8, .logprobs = 0}};
  for (bool device : {true, false}) {
    open();
    answers_.clear();
    backend_->choosesItself = device;
    std::vector<std::pair<RequestId, Request>> asked;
    for (const SamplingParams &kind : kinds) {
      Request r = asking(range(int32_t(asked.size()), 9), 25);
      r.sampling = kind;
      asked.emplace_back(submit(r), r);
    }
    runAll();
    for (auto &[id, r] : asked)
      expectAlone(id, r, device ? " on the device" : "");
    EXPECT_EQ(backend_->mostFlying, device ? 2u : 1u);
    EXPECT_EQ(backend_->sampledHere > 0, device);
    expectNoLeak();
  }
}

// Log probabilities of a prompt are those of the logits behind each token before, whoever chooses,
// and change neither the answer nor those of its neighbours.
TEST_F(EngineSamplingTest, APromptIsScored) {
  for (bool device : {true, false}) {
    open();
    answers_.clear();
    backend_->choosesItself = device;
    std::vector<std::pair<RequestId, Request>> asked;
    for (int i = 0; i < 6; ++i) {
      Request r = asking(range(3 * i, 1 + 7 * (i % 3)), 6);
      r.promptLogprobs = i < 4 ? i : -1;
      r.sampling = {.temperature = i % 2 ? 0.9 : 0, .seed = uint64_t(i), .logprobs = i - 1};
      asked.emplace_back(submit(r), r);
    }
    runAll();
    for (auto &[id, r] : asked) {
      EXPECT_EQ(answers_[id].tokens, alone(r));
      const std::vector<Choice> &scored = answers_[id].prompt;
      ASSERT_EQ(scored.size(), r.promptLogprobs < 0 ? 0 : r.prompt.size() - 1);
      for (size_t at = 0; at < scored.size(); ++at) {
        const std::vector<float> logits = backend_->logitsOf(std::span(r.prompt).first(at + 1));
        const double sum = logSumExp(logits);
        EXPECT_EQ(scored[at].token, r.prompt[at + 1]);
        EXPECT_NEAR(scored[at].logprob, logits[size_t(scored[at].token)] - sum, 1e-9);
        const auto best = mostProbable(logits, sum, r.promptLogprobs);
        ASSERT_EQ(scored[at].top.size(), best.size());
        for (size_t i = 0; i < best.size(); ++i)
          EXPECT_EQ(scored[at].top[i].token, best[i].token);
      }
    }
    expectNoLeak();
  }
}

TEST_F(EngineSamplingTest, AScoredPromptCannotHaveNaN) {
  for (bool device : {true, false}) {
    open();
    answers_.clear();
    backend_->choosesItself = device;
    backend_->poison = 33;
    Request r = asking({1, 33, 2, 4}, 5);
    r.promptLogprobs = 0;
    const RequestId bad = submit(r);
    r.promptLogprobs = mostReported + 1;
    EXPECT_EQ(engine_->submit(r).refusal, Refusal::Sampling);
    runAll();
    EXPECT_EQ(answers_[bad].ending->status.code(), Code::Quality);
    EXPECT_EQ(answers_[bad].tokens, Tokens());
    expectNoLeak();
  }
}

// Logits that are read for a NaN alone would be copied, by the row of a vocabulary.
TEST_F(EngineSamplingTest, APromptIsCheckedWhereItsChoiceIsMade) {
  for (bool device : {true, false}) {
    open();
    answers_.clear();
    backend_->choosesItself = device;
    const Request r = asking(range(0, 9), 5);
    const RequestId id = submit(r);
    backend_->poison = 33;
    const RequestId bad = submit(asking({33, 1}, 5));
    runAll();
    EXPECT_EQ(answers_[id].tokens, alone(r));
    EXPECT_EQ(answers_[bad].ending->reason, Finish::Failed);
    EXPECT_EQ(answers_[bad].ending->status.code(), Code::Quality);
    EXPECT_EQ(backend_->sampledHere, device ? 1 : 0); // the one that is a number
    expectNoLeak();
  }
}

TEST_F(EngineSamplingTest, ManyAdjustmentsAreTheHosts) {
  shape_.vocabulary = 3000;
  open();
  Request r = asking(range(1, 5), 6);
  r.sampling.temperature = 1;
  for (int32_t id = 0; id < SampledChoice::mostAdjustments + 1; ++id)
    r.sampling.logitBias.emplace_back(id, -1.0);
  RequestId id = submit(r);
  runAll();
  EXPECT_EQ(backend_->sampledHere, 0);
  EXPECT_EQ(answers_[id].tokens, alone(r));
}

TEST_F(EngineSamplingTest, LongReportsAreTheHosts) {
  open();
  Request r = asking(range(1, 5), 6);
  r.sampling.logprobs = mostReported + 1;
  RequestId id = submit(r);
  runAll();
  EXPECT_EQ(backend_->sampledHere, 0);
  expectAlone(id, r, "");
}

TEST_F(EngineSamplingTest, ASampledChoiceOfNothingFails) {
  open();
  Request r = asking(range(1, 5), 6);
  r.sampling.temperature = 1;
  for (int32_t id = 0; id < shape_.vocabulary; ++id)
    r.sampling.logitBias.emplace_back(id, -INFINITY);
  RequestId id = submit(r);
  runAll();
  EXPECT_EQ(answers_[id].ending->reason, Finish::Failed);
  EXPECT_NE(answers_[id].ending->status.message().find("minus infinity"), std::string::npos);
}

} // namespace
} // namespace gpt2c::rt

// Who chooses an engine's tokens, and what comes of choices that cannot be made.
#include "EngineFixture.h"

namespace gpt2c::rt {
namespace {

class EngineSamplingTest : public EngineTest {};

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
      {.temperature = 0.7, .logitBias = {{3, 5.0}, {7, -INFINITY}}, .seed = 7}};
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
      EXPECT_EQ(answers_[id].tokens, alone(r)) << id << (device ? " on the device" : "");
    EXPECT_EQ(backend_->mostFlying, device ? 2u : 1u);
    EXPECT_EQ(backend_->sampledHere > 0, device);
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
    EXPECT_EQ(answers_[bad].ending->reason, Ending::Failed);
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

TEST_F(EngineSamplingTest, ASampledChoiceOfNothingFails) {
  open();
  Request r = asking(range(1, 5), 6);
  r.sampling.temperature = 1;
  for (int32_t id = 0; id < shape_.vocabulary; ++id)
    r.sampling.logitBias.emplace_back(id, -INFINITY);
  RequestId id = submit(r);
  runAll();
  EXPECT_EQ(answers_[id].ending->reason, Ending::Failed);
  EXPECT_NE(answers_[id].ending->status.message().find("minus infinity"), std::string::npos);
}

} // namespace
} // namespace gpt2c::rt

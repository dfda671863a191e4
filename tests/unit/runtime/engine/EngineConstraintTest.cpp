// Answers with tokens that may not be chosen: each is the one of its request alone, on the device
// and on the host, whatever runs beside it.
#include "EngineFixture.h"
#include "ToyConstraint.h"

#include <random>

namespace gpt2c::rt {
namespace {

class EngineConstraintTest : public EngineTest {
protected:
  std::shared_ptr<const Constraint> steps(int least, int most, std::vector<int32_t> ends = {}) {
    return std::make_shared<toy::StepConstraint>(shape_.vocabulary, least, most, std::move(ends));
  }

  std::vector<Request> kinds() {
    std::vector<Request> all;
    auto add = [&](SamplingParams sampling, std::vector<int32_t> stops = {}, int64_t least = 0) {
      Request &r = all.emplace_back(asking(range(int32_t(3 * all.size()), 7), 20));
      r.sampling = std::move(sampling);
      r.stopTokens = std::move(stops);
      r.minTokens = least;
    };
    const std::vector<int32_t> tenth = {0, 10, 20, 30};
    add({});
    add({.allowedTokens = {1, 5, 39}});
    add({.temperature = 2, .allowedTokens = {1, 2, 3, 4, 5, 31, 32, 33}, .seed = 1});
    add({.badWords = {{7}, {1, 2}, {3, 4, 5}}});
    add({.temperature = 1, .badWords = {{8}, {11}, {2, 3}}, .seed = 2, .logprobs = 2});
    add({.constraint = steps(0, 9)});
    add({.temperature = 1, .constraint = steps(4, 15, {39}), .seed = 3}, {39});
    add({.temperature = 1, .constraint = steps(4, 15, {39}), .seed = 4}); // which does not end it
    add({.temperature = 0.9, .topK = 5, .constraint = steps(2, 12, {0}), .seed = 5}, {0});
    add({.temperature = 1, .presencePenalty = 1, .constraint = steps(0, 11), .seed = 6});
    add({}, tenth, 12);
    add({.temperature = 1, .seed = 7}, tenth, 5);
    return all;
  }
};

TEST_F(EngineConstraintTest, AnAnswerIsTheOneOfItsRequestAlone) {
  for (const bool device : {true, false}) {
    open();
    answers_.clear();
    backend_->choosesItself = device;
    std::vector<std::pair<RequestId, Request>> asked;
    for (const Request &r : kinds())
      asked.emplace_back(submit(r), r);
    runAll();
    for (size_t i = 0; i < asked.size(); ++i)
      EXPECT_EQ(answers_[asked[i].first].tokens, alone(asked[i].second)) << i << " " << device;
    EXPECT_EQ(backend_->mostFlying, device ? 2u : 1u);
    expectNoLeak();
  }
}

TEST_F(EngineConstraintTest, WhatIsForbiddenIsNotChosen) {
  open();
  const std::vector<Request> asked = kinds();
  for (const Request &r : asked)
    submit(r);
  runAll();
  auto tokens = [&](RequestId id) { return answers_[id].tokens; };
  for (const int32_t t : tokens(2))
    EXPECT_TRUE(t == 1 || t == 5 || t == 39) << t;
  const Tokens words = tokens(4);
  for (size_t i = 0; i < words.size(); ++i) {
    EXPECT_NE(words[i], 7);
    EXPECT_FALSE(i > 0 && words[i] == 2 && words[i - 1] == 1);
  }
  EXPECT_EQ(tokens(6).size(), 9U);
  EXPECT_EQ(answers_[6].ending->reason, Finish::Stop);
  EXPECT_EQ(answers_[6].ending->stopToken, -1);
  EXPECT_EQ(std::ranges::count(tokens(8), 39), 0);
  EXPECT_EQ(tokens(8).size(), 15U);
  const Tokens late = tokens(11);
  ASSERT_GE(late.size(), 12U);
  for (size_t i = 0; i < 12; ++i)
    EXPECT_NE(late[i] % 10, 0) << i;
}

TEST_F(EngineConstraintTest, WhatForbidsEverythingFails) {
  for (const bool device : {true, false}) {
    open();
    answers_.clear();
    backend_->choosesItself = device;
    Request r = asking({1, 2, 3}, 5);
    r.sampling = {.allowedTokens = {1}, .constraint = steps(0, 9)}; // 0 comes first
    const RequestId bad = submit(r), good = submit(asking({4, 5}, 5));
    runAll();
    EXPECT_EQ(answers_[bad].ending->reason, Finish::Failed);
    EXPECT_EQ(answers_[bad].ending->status.code(), Code::Quality);
    EXPECT_EQ(answers_[good].tokens, alone(asking({4, 5}, 5)));
    expectNoLeak();
  }
}

// The same answers, in fewer steps, whatever runs beside them and ends them.
TEST_F(EngineConstraintTest, TokensThatMustComeTakeNoStep) {
  std::mt19937 random(11);
  int64_t forced = 0;
  for (int round = 0; round < 60; ++round) {
    shape_.paged.maxSteps = round % 2 ? 0 : 16;
    open({.rowBudget = round % 3 ? 0 : 16, .maxSequences = round % 3 ? 0 : 12});
    answers_.clear();
    std::vector<std::pair<RequestId, Request>> asked;
    for (int i = 0; i < 8; ++i) {
      Request r = asking(range(int32_t(random() % 40), 1 + int32_t(random() % 9)),
                         1 + int64_t(random() % 30));
      r.sampling.temperature = double(random() % 3) / 2;
      r.sampling.seed = random();
      if (i % 4)
        r.sampling.constraint = std::make_shared<toy::ForcingConstraint>(
            shape_.vocabulary, 1 + int(random() % 40), random());
      if (random() % 4 == 0)
        r.stopTokens = {int32_t(random() % 40), int32_t(random() % 40)};
      if (random() % 5 == 0)
        r.sampling.presencePenalty = 1;
      if (random() % 5 == 0)
        r.sampling.logprobs = 1;
      asked.emplace_back(submit(r), r);
    }
    if (round % 4 == 0) {
      for (int i = 0; i < 3; ++i)
        EXPECT_TRUE(engine_->step().ok());
      engine_->cancel(asked[1].first);
      asked.erase(asked.begin() + 1);
    }
    runAll();
    for (const auto &[id, r] : asked)
      EXPECT_EQ(answers_[id].tokens, alone(r)) << round;
    const EngineStats s = engine_->stats();
    EXPECT_LE(s.rows - s.promptRows - s.wastedRows, s.newTokens) << "a token is one row at most";
    forced += s.forcedTokens;
    expectNoLeak();
  }
  EXPECT_GT(forced, 500);
}

TEST_F(EngineConstraintTest, AnAnswerThatMustComeTakesThreeSteps) {
  Request r = asking({1, 2, 0}, 30);
  r.sampling.constraint = std::make_shared<toy::StepConstraint>(3, 0, 30);
  shape_.vocabulary = 3; // of each residue there is one token
  open();
  const RequestId id = submit(r);
  runAll();
  EXPECT_EQ(answers_[id].tokens, alone(r));
  EXPECT_GE(engine_->stats().forcedTokens, 27);
  EXPECT_LE(engine_->stats().calls, 3);
}

// Where calls of single tokens are the faster ones, others have to make more than twice as many.
TEST_F(EngineConstraintTest, TokensThatMustComeWaitForOneAnother) {
  shape_.paged.maxSteps = 16;
  int single = 0, many = 0;
  for (int round = 0; round < 12; ++round) {
    open();
    answers_.clear();
    std::vector<std::pair<RequestId, Request>> asked;
    for (int i = 0; i < 1 + round % 3; ++i) {
      Request r = asking({1, 2, i}, 40);
      if (i == 0)
        r.sampling.constraint =
            std::make_shared<toy::ForcingConstraint>(shape_.vocabulary, 40, uint64_t(round));
      asked.emplace_back(submit(r), r);
    }
    EXPECT_TRUE(engine_->step().ok()); // their prompts
    while (!engine_->idle()) {
      backend_->rows = 0;
      EXPECT_TRUE(engine_->step().ok());
      const auto rows = size_t(backend_->rows), segments = backend_->segments;
      EXPECT_TRUE(rows == 0 || rows == segments || rows > 2 * segments) << rows;
      (rows > segments ? many : single) += rows > 0;
    }
    drain();
    for (const auto &[id, r] : asked)
      EXPECT_EQ(answers_[id].tokens, alone(r)) << round;
    expectNoLeak();
  }
  EXPECT_GT(single, 100);
  EXPECT_GT(many, 5);
}

TEST_F(EngineConstraintTest, BadParametersAreRefused) {
  open();
  Request r = asking({1, 2, 3}, 5);
  r.minTokens = 6;
  EXPECT_EQ(engine_->submit(r).refusal, Refusal::MaxTokens);
  r.minTokens = 0;
  r.sampling = {.allowedTokens = {40}};
  EXPECT_EQ(engine_->submit(r).refusal, Refusal::Sampling);
  r.sampling = {.badWords = {{3, -1}}};
  EXPECT_EQ(engine_->submit(r).refusal, Refusal::Sampling);
  r.sampling = {.badWords = {{}}};
  EXPECT_EQ(engine_->submit(r).refusal, Refusal::Sampling);
  r.sampling = {.constraint = std::make_shared<toy::StepConstraint>(41, 0, 9)};
  EXPECT_EQ(engine_->submit(r).refusal, Refusal::Sampling);
}

// Pages are those of one salt; of many salts what is known of each is forgotten in time.
TEST_F(EngineConstraintTest, SaltsShareNoPages) {
  open();
  Request r = asking(range(0, 21), 1);
  auto cachedOf = [&](const std::string &salt) {
    r.cacheSalt = salt;
    const RequestId id = submit(r);
    runAll();
    EXPECT_EQ(answers_[id].tokens, alone(r));
    return answers_[id].ending->cachedTokens;
  };
  EXPECT_EQ(cachedOf(""), 0);
  EXPECT_EQ(cachedOf("a"), 0);
  EXPECT_EQ(cachedOf("b"), 0);
  EXPECT_EQ(cachedOf("a"), 20);
  EXPECT_EQ(cachedOf(""), 20);
  EXPECT_EQ(cachedOf("b"), 20);
  for (int i = 0; i < 300; ++i)
    EXPECT_EQ(cachedOf("salt " + std::to_string(i)), 0);
  EXPECT_EQ(cachedOf("salt 299"), 20);
  expectNoLeak();
}

TEST_F(EngineConstraintTest, WithoutACacheNoPagesAreShared) {
  open({.prefixCaching = false});
  Request r = asking(range(0, 21), 4);
  for (int i = 0; i < 3; ++i) {
    const RequestId first = submit(r), beside = submit(r);
    runAll();
    for (const RequestId id : {first, beside}) {
      EXPECT_EQ(answers_[id].tokens, alone(r));
      EXPECT_EQ(answers_[id].ending->cachedTokens, 0);
    }
  }
  EXPECT_EQ(engine_->stats().prefixHits, 0);
  expectNoLeak();
}

} // namespace
} // namespace gpt2c::rt

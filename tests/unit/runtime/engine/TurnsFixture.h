// Requests on few pages of the device, with pages in host memory behind them.
#pragma once

#include "EngineFixture.h"

#include <random>

namespace gpt2c::rt {

class EngineTurnsTest : public EngineTest {
protected:
  /// The requests at once, on few pages, and their answers with plenty of them.
  void expectSame(const std::vector<Request> &requests, const EngineOptions &options) {
    answers_.clear();
    open(options);
    for (const Request &r : requests)
      submit(r);
    runAll();
    const std::map<RequestId, Answer> few = std::exchange(answers_, {});
    stats_ = engine_->stats();
    expectNoLeak();
    shape_.paged.pages = 4096;
    open();
    for (const Request &r : requests)
      submit(r);
    runAll();
    ASSERT_EQ(few.size(), answers_.size());
    for (const auto &[id, answer] : few) {
      ASSERT_TRUE(answer.ending);
      EXPECT_EQ(answer.ending->reason, answers_[id].ending->reason);
      ASSERT_EQ(answer.tokens, answers_[id].tokens);
      for (size_t i = 0; i < answer.choices.size(); ++i)
        ASSERT_EQ(answer.choices[i].logprob, answers_[id].choices[i].logprob);
    }
  }

  std::vector<Request> some(int count, std::mt19937 &random) {
    std::vector<Request> out;
    const Tokens prefix = range(3, 20);
    for (int i = 0; i < count; ++i) {
      Tokens prompt = random() % 3 ? Tokens() : prefix;
      for (size_t n = 1 + random() % 30; n > 0; --n)
        prompt.push_back(int32_t(random() % 40));
      out.push_back(asking(prompt, 1 + int64_t(random() % 40)));
      if (random() % 2)
        out.back().sampling = {.temperature = 0.8, .topK = 10, .seed = random(), .logprobs = 2};
      if (random() % 4 == 0)
        out.back().promptLogprobs = 1;
      if (random() % 3 == 0)
        out.back().stopTokens = {int32_t(random() % 40)};
    }
    return out;
  }

  EngineStats stats_;
};

} // namespace gpt2c::rt

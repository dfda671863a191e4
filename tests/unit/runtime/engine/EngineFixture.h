// An engine over a toy device, and what its requests come to.
#pragma once

#include "runtime/engine/Engine.h"
#include "tests/unit/runtime/PagedToy.h"

#include <gtest/gtest.h>

namespace gpt2c::rt {

/// What came of a request.
struct Answer {
  Tokens tokens;
  std::vector<Choice> choices;
  std::string text;
  std::optional<Ending> ending;
  std::vector<Choice> prompt;
};

class EngineTest : public ::testing::Test {
protected:
  Engine &open(EngineOptions options = {}) {
    engine_.reset();
    backend_ = std::make_unique<toy::PagedBackend>(shape_);
    Result<std::unique_ptr<Engine>> made =
        Engine::create(*backend_, {shape_.vocabulary, shape_.context}, std::move(options));
    EXPECT_TRUE(made) << made.status().message();
    engine_ = made.take();
    return *engine_;
  }

  static Request asking(Tokens prompt, int64_t maxTokens) {
    Request r;
    r.prompt = std::move(prompt);
    r.maxTokens = maxTokens;
    return r;
  }
  static Tokens range(int32_t first, int32_t count) {
    Tokens out;
    for (int32_t i = 0; i < count; ++i)
      out.push_back((first + i) % 40);
    return out;
  }

  RequestId submit(Request request) {
    Submitted s = engine_->submit(std::move(request));
    EXPECT_TRUE(s) << s.status.message();
    return s.id;
  }

  void take(const Update &u) {
    Answer &a = answers_[u.id];
    EXPECT_FALSE(a.ending) << "an update behind the ending";
    if (u.choice) {
      a.tokens.push_back(u.choice->token);
      a.choices.push_back(*u.choice);
    }
    a.text += u.text;
    a.prompt.insert(a.prompt.end(), u.prompt.begin(), u.prompt.end());
    a.ending = u.ending;
  }
  void drain() {
    while (std::optional<Update> u = engine_->poll())
      take(*u);
  }
  int runAll() {
    int steps = 0;
    for (; !engine_->idle(); ++steps) {
      Status s = engine_->step();
      EXPECT_TRUE(s.ok()) << s.message();
      drain();
      if (steps > 10000) {
        ADD_FAILURE() << "no end";
        break;
      }
    }
    return steps;
  }

  /// The answer of Session::generate.
  Tokens alone(const Request &r) {
    if (!session_)
      session_ = toy::makeSession(shape_);
    GenerateOptions o;
    o.maxNewTokens = r.maxTokens;
    o.minNewTokens = r.minTokens;
    o.stopTokens = r.stopTokens;
    o.sampling = {r.sampling};
    Result<Generated> out = session_->generate(std::vector<Tokens>{r.prompt}, o);
    EXPECT_TRUE(out) << out.status().message();
    return out ? out->tokens[0] : Tokens();
  }

  void expectNoLeak() {
    const EngineStats s = engine_->stats();
    EXPECT_EQ(s.pagesUsed, 0);
    EXPECT_EQ(s.pagesReserved, 0);
    EXPECT_EQ(s.running + s.waiting, 0);
  }

  toy::Shape shape_;
  std::unique_ptr<toy::PagedBackend> backend_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Session> session_;
  std::map<RequestId, Answer> answers_;
};

} // namespace gpt2c::rt

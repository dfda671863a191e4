// Thousands of random requests: every answer is that of the request alone, no page leaks.
#include "runtime/engine/Engine.h"
#include "tests/unit/runtime/PagedToy.h"

#include <gtest/gtest.h>

#include <random>

#include <malloc.h>

namespace gpt2c::rt {
namespace {

using toy::PagedBackend;
using toy::Shape;

struct Case {
  Shape shape;
  EngineOptions options;
};

Case randomCase(std::mt19937 &random) {
  auto between = [&](int32_t a, int32_t b) { return a + int32_t(random() % uint32_t(b - a + 1)); };
  Case c;
  c.shape.vocabulary = between(2, 50);
  c.shape.context = between(8, 96);
  c.shape.paged = {.pageTokens = between(1, 9),
                   .pages = between(2, 70),
                   .maxRows = between(1, 64),
                   .maxSegments = between(1, 16),
                   .pageBytes = 1};
  c.options.rowBudget = between(0, 1) ? 0 : between(1, c.shape.paged.maxRows);
  c.options.maxSequences = between(0, 2) ? 0 : between(1, 8);
  c.options.maxWaiting = between(0, 3) ? 4096 : between(1, 10);
  return c;
}

class Player {
public:
  Player(const Case &c, uint32_t seed)
      : case_(c), random_(seed), session_(toy::makeSession(c.shape)), backend_(c.shape) {
    Result<std::unique_ptr<Engine>> made =
        Engine::create(backend_, {c.shape.vocabulary, c.shape.context}, c.options);
    EXPECT_TRUE(made) << made.status().message();
    engine_ = made.take();
    for (int i = 0; i < 3; ++i)
      prefixes_.push_back(randomTokens(below(c.shape.context)));
  }

  void play(int requests) {
    while (requests > 0 || !engine_->idle()) {
      for (int32_t n = below(3); n > 0 && requests > 0; --n, --requests)
        submitOne();
      if (below(12) == 0 && lastId_)
        cancelOne();
      Status s = engine_->step();
      ASSERT_TRUE(s.ok()) << s.message();
      take();
      ASSERT_GE(engine_->pool().unreserved(), 0);
      ASSERT_FALSE(::testing::Test::HasFailure());
    }
    const EngineStats s = engine_->stats();
    EXPECT_TRUE(live_.empty()) << live_.size() << " requests have no ending";
    EXPECT_EQ(s.pagesUsed, 0);
    EXPECT_EQ(s.pagesReserved, 0);
    EXPECT_LE(s.prefixHits, s.prefixQueries);
    hits += s.prefixHits;
    wasted += s.wastedRows;
    cancelled += s.ended[size_t(Finish::Caller)];
    completed += s.ended[size_t(Finish::Length)] + s.ended[size_t(Finish::Stop)];
  }

  static int64_t hits, wasted, cancelled, completed, refused;

private:
  struct Live {
    Request request;
    Tokens tokens;
    bool cancelled = false;
  };

  int32_t below(int32_t n) { return n > 0 ? int32_t(random_() % uint32_t(n)) : 0; }
  Tokens randomTokens(int32_t count) {
    Tokens out;
    for (int32_t i = 0; i < count; ++i)
      out.push_back(below(case_.shape.vocabulary));
    return out;
  }

  void submitOne() {
    Request r;
    if (below(2))
      r.prompt = prefixes_[size_t(below(3))];
    if (!r.prompt.empty())
      r.prompt.resize(size_t(1 + below(int32_t(r.prompt.size()))));
    for (int32_t t : randomTokens(below(case_.shape.context / 3 + 1)))
      r.prompt.push_back(t);
    r.maxTokens = 1 + below(case_.shape.context / 2);
    for (int32_t n = below(3); n > 0; --n)
      r.stopTokens.push_back(below(case_.shape.vocabulary));
    if (below(3) == 0)
      r.sampling = {.temperature = 0.7,
                    .topK = below(5),
                    .topP = 0.95,
                    .repetitionPenalty = 1.1,
                    .seed = random_(),
                    .logprobs = below(3) - 1};
    const int64_t needed = stateTokens(int64_t(r.prompt.size()), r.maxTokens);
    const bool fits = !r.prompt.empty() && needed <= case_.shape.context &&
                      pagesFor(needed, case_.shape.paged.pageTokens) <= case_.shape.paged.pages &&
                      engine_->stats().waiting < engine_->limits().waiting;
    Submitted s = engine_->submit(r);
    ASSERT_EQ(bool(s), fits) << s.status.message();
    refused += !s;
    if (!s)
      return;
    lastId_ = s.id;
    live_[s.id].request = std::move(r);
  }

  void cancelOne() {
    const RequestId id = 1 + RequestId(below(int32_t(lastId_)));
    const bool lives = live_.contains(id);
    ASSERT_EQ(engine_->cancel(id), lives);
    if (lives)
      live_[id].cancelled = true;
  }

  void take() {
    while (std::optional<Update> u = engine_->poll()) {
      ASSERT_TRUE(live_.contains(u->id));
      Live &l = live_[u->id];
      if (u->choice)
        l.tokens.push_back(u->choice->token);
      if (!u->ending)
        continue;
      ASSERT_EQ(u->ending->reason == Finish::Caller, l.cancelled);
      compare(l, *u->ending);
      live_.erase(u->id);
    }
  }

  void compare(const Live &l, const Ending &ending) {
    GenerateOptions o;
    o.maxNewTokens = l.request.maxTokens;
    o.stopTokens = l.request.stopTokens;
    o.sampling = {l.request.sampling};
    Result<Generated> alone = session_->generate(std::vector<Tokens>{l.request.prompt}, o);
    ASSERT_TRUE(alone) << alone.status().message();
    Tokens expected = alone->tokens[0];
    if (l.cancelled) {
      ASSERT_LE(l.tokens.size(), expected.size());
      expected.resize(l.tokens.size());
    } else {
      ASSERT_EQ(ending.reason == Finish::Stop, alone->finish[0] == Finish::Stop);
    }
    ASSERT_EQ(l.tokens, expected);
    ASSERT_EQ(ending.newTokens, int32_t(expected.size()));
  }

  Case case_;
  std::mt19937 random_;
  std::unique_ptr<Session> session_;
  PagedBackend backend_;
  std::unique_ptr<Engine> engine_;
  std::vector<Tokens> prefixes_;
  std::map<RequestId, Live> live_;
  RequestId lastId_ = 0;
};

int64_t Player::hits, Player::wasted, Player::cancelled, Player::completed, Player::refused;

TEST(EngineRandom, AnswersAreThoseOfOneRequestAtATime) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Player(randomCase(random), seed).play(60);
    if (::testing::Test::HasFailure())
      return;
  }
  // Everything that could go wrong was there.
  EXPECT_GT(Player::hits, 1000);
  EXPECT_GT(Player::wasted, 100);
  EXPECT_GT(Player::cancelled, 100);
  EXPECT_GT(Player::completed, 1000);
  EXPECT_GT(Player::refused, 100);
}

// What the host holds after a thousand requests is what it holds after five thousand.
TEST(EngineRandom, MemoryIsFlat) {
  Case c;
  c.options.rowBudget = 32;
  PagedBackend backend(c.shape);
  auto engine = Engine::create(backend, {c.shape.vocabulary, c.shape.context}, c.options);
  ASSERT_TRUE(engine);
  std::mt19937 random(3);
  std::vector<size_t> held;
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 1000; ++i) {
      Request r;
      r.prompt.assign(1 + random() % 30, int32_t(random() % 40));
      r.maxTokens = 1 + int64_t(random() % 10);
      ASSERT_TRUE((*engine)->submit(std::move(r)));
      for (int steps = 1 + int(random() % 3); steps > 0; --steps) {
        ASSERT_TRUE((*engine)->step().ok());
        while ((*engine)->poll())
          ;
      }
    }
    while (!(*engine)->idle()) {
      ASSERT_TRUE((*engine)->step().ok());
      while ((*engine)->poll())
        ;
    }
    held.push_back(::mallinfo2().uordblks);
  }
  EXPECT_LE(held.back(), held.front() + 4096);
  EXPECT_EQ((*engine)->stats().pagesUsed, 0);
}

} // namespace
} // namespace gpt2c::rt

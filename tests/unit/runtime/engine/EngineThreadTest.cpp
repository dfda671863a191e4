// An engine on a thread of its own: requests from many threads, turns with others, endings.
#include "runtime/engine/EngineThread.h"
#include "tests/unit/runtime/PagedToy.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace gpt2c::rt {
namespace {

class EngineThreadTest : public ::testing::Test {
protected:
  void open(EngineTurns turns = {}) {
    backend_ = std::make_unique<toy::PagedBackend>(shape_);
    Result<std::unique_ptr<Engine>> made =
        Engine::create(*backend_, {shape_.vocabulary, shape_.context}, {.maxWaiting = 100000});
    ASSERT_TRUE(made) << made.status().message();
    engine_ = std::make_unique<EngineThread>(made.take(), std::move(turns));
  }

  static Request asking(Tokens prompt, int64_t maxTokens) {
    Request r;
    r.prompt = std::move(prompt);
    r.maxTokens = maxTokens;
    return r;
  }

  struct Got {
    Tokens tokens;
    Ending ending;
  };
  /// The answer, when it is whole.
  std::future<Got> ask(Request request, RequestId *id = nullptr) {
    auto got = std::make_shared<std::pair<Got, std::promise<Got>>>();
    std::future<Got> whole = got->second.get_future();
    Submitted s = engine_->submit(std::move(request), [got](const Update &u) {
      if (u.choice)
        got->first.tokens.push_back(u.choice->token);
      if (!u.ending)
        return;
      got->first.ending = *u.ending;
      got->second.set_value(std::move(got->first));
    });
    EXPECT_TRUE(s) << s.status.message();
    if (id)
      *id = s.id;
    return whole;
  }

  toy::Shape shape_;
  std::unique_ptr<toy::PagedBackend> backend_;
  std::unique_ptr<EngineThread> engine_;
};

TEST_F(EngineThreadTest, ManyThreadsGetTheAnswersOfOne) {
  open();
  std::vector<std::thread> threads;
  std::atomic<int> whole = 0;
  std::vector<std::unique_ptr<Session>> sessions;
  for (int t = 0; t < 6; ++t)
    sessions.push_back(toy::makeSession(shape_));
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 40; ++i) {
        const Tokens prompt{t, i, (t * i) % 40};
        RequestId id = 0;
        if (i % 3 == 0) // whether or not it sleeps just now
          engine_->expect();
        std::future<Got> got = ask(asking(prompt, 1 + i % 20), &id);
        if (i % 7 == 3)
          engine_->cancel(id);
        const Got answer = got.get();
        EXPECT_EQ(answer.ending.promptTokens, 3);
        GenerateOptions o;
        o.maxNewTokens = 1 + i % 20;
        Tokens expected = sessions[size_t(t)]->generate(std::vector<Tokens>{prompt}, o)->tokens[0];
        if (answer.ending.reason == Finish::Caller)
          expected.resize(answer.tokens.size());
        else
          ++whole;
        EXPECT_EQ(answer.tokens, expected);
      }
    });
  for (std::thread &t : threads)
    t.join();
  EXPECT_GE(whole, 6 * 34);
  EXPECT_EQ(engine_->stats().running + engine_->stats().waiting, 0);
}

// Whoever is expected may stay away.
TEST_F(EngineThreadTest, NothingComesOfAnExpectation) {
  open();
  for (int i = 0; i < 50; ++i) {
    engine_->expect();
    if (i % 5 == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (i % 7 == 0) {
      EXPECT_EQ(ask(asking({1, 2}, 3)).get().tokens.size(), 3U);
    }
  }
  engine_->expect(); // and the end comes meanwhile
}

// Once behind the updates of all that share it; also where a request was never begun.
TEST_F(EngineThreadTest, SaysWhereUpdatesEnd) {
  std::mutex device;
  device.lock();
  open({.begin = [&](Engine &) { device.lock(); }, .end = [&] { device.unlock(); }});
  std::atomic<int> since = 0, tokens = 0, ends = 0, empty = 0, most = 0;
  auto shared = std::make_shared<const std::function<void()>>([&] {
    const int together = since.exchange(0);
    empty += together == 0;
    most = std::max(most.load(), together);
  });
  std::vector<RequestId> ids;
  for (int32_t i = 0; i < 6; ++i)
    ids.push_back(engine_
                      ->submit(
                          asking({i, 2}, 8),
                          [&](const Update &u) {
                            ++since;
                            tokens += u.choice.has_value();
                            ends += u.ending.has_value();
                          },
                          shared)
                      .id);
  engine_->submit(asking({9}, 3), [](const Update &) {});
  device.unlock();
  while (ends < 6)
    std::this_thread::yield();
  device.lock(); // behind the turn
  EXPECT_EQ(tokens, 6 * 8);
  EXPECT_EQ(since, 0);
  EXPECT_EQ(empty, 0);
  EXPECT_GT(most, 1);
  device.unlock();
}

TEST_F(EngineThreadTest, RefusesAtOnce) {
  open();
  EXPECT_FALSE(engine_->check(asking({}, 1)).ok());
  const Submitted s = engine_->submit(asking({1}, 100000), [](const Update &) { FAIL(); });
  EXPECT_FALSE(s);
  EXPECT_EQ(s.refusal, Refusal::Context);
}

// Who waits for the device gets it behind what runs, however much more is asked for.
TEST_F(EngineThreadTest, TurnsEndWhereOthersWait) {
  std::mutex device;
  std::atomic<bool> wanted = false;
  std::atomic<int> turns = 0;
  open({.begin =
            [&](Engine &) {
              while (wanted)
                std::this_thread::yield();
              device.lock();
              ++turns;
            },
        .end = [&] { device.unlock(); },
        .othersWait = [&] { return wanted.load(); }});
  std::atomic<bool> over = false;
  std::vector<std::thread> busy;
  for (int t = 0; t < 3; ++t)
    busy.emplace_back([&, t] {
      while (!over)
        ask(asking({t, 1}, 30)).get();
    });
  for (int i = 0; i < 20; ++i) {
    const int before = turns;
    for (auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
         turns == before && std::chrono::steady_clock::now() < end;)
      std::this_thread::yield();
    EXPECT_GT(turns, before) << "nothing runs behind wait " << i;
    wanted = true;
    std::lock_guard lock(device);
    wanted = false;
  }
  over = true;
  for (std::thread &t : busy)
    t.join();
  engine_.reset(); // its last turn ends with what is above
}

TEST_F(EngineThreadTest, ItsEndIsEveryRequestsEnd) {
  open();
  std::vector<std::future<Got>> all;
  for (int i = 0; i < 200; ++i)
    all.push_back(ask(asking({i % 40, 2}, 90)));
  engine_.reset();
  int cancelled = 0;
  for (std::future<Got> &got : all) {
    ASSERT_EQ(got.wait_for(std::chrono::seconds(0)), std::future_status::ready);
    cancelled += got.get().ending.reason == Finish::Caller;
  }
  EXPECT_GT(cancelled, 0);
}

TEST_F(EngineThreadTest, AFailureOfTheDeviceIsTold) {
  open();
  backend_->failAt = 1;
  const Got failed = ask(asking({1, 2}, 9)).get();
  EXPECT_EQ(failed.ending.reason, Finish::Failed);
  EXPECT_FALSE(failed.ending.status.ok());
  EXPECT_EQ(ask(asking({1, 2}, 9)).get().tokens.size(), 9u);
}

} // namespace
} // namespace gpt2c::rt

// Requests of more pages than the device has, which calls read in host memory where they lie.
#include "TurnsFixture.h"

#include <algorithm>

namespace gpt2c::rt {
namespace {

class EngineLongContextTest : public EngineTurnsTest {
protected:
  EngineLongContextTest() {
    shape_.context = 400;
    shape_.paged.readsHostPages = true;
  }

  /// A request of up to all of the context.
  Request longOne(std::mt19937 &random) {
    Request r = asking(range(int32_t(random() % 3), 1 + int32_t(random() % 300)),
                       1 + int64_t(random() % 100));
    if (random() % 2)
      r.sampling = {.temperature = 0.7, .seed = random(), .logprobs = 1};
    return r;
  }
};

// One context of four times the device's pages: a prompt in pieces, then token by token.
TEST_F(EngineLongContextTest, OneOfFourTimesThePages) {
  for (const int32_t pages : {1, 2, 3, 25}) {
    SCOPED_TRACE(pages);
    const int32_t tokens = std::min(400, 16 * pages);
    for (const int32_t prompt : {1, tokens / 2, tokens}) {
      shape_.paged.pages = pages;
      expectSame({asking(range(5, prompt), 400 + 1 - prompt)}, {.hostPages = 120});
      EXPECT_GT(stats_.pagesRead, 0);
    }
  }
}

// Random ones beside others that come, take turns and go.
TEST_F(EngineLongContextTest, AnswersAreThoseOfPlentyOfPages) {
  std::mt19937 random(11);
  int64_t read = 0, in = 0, hits = 0;
  for (int round = 0; round < 150; ++round) {
    SCOPED_TRACE(round);
    shape_.paged.pages = 24 + int32_t(random() % 40);
    std::vector<Request> requests = some(int(random() % 12), random);
    for (size_t i = 0; i < 1 + random() % 3; ++i)
      requests.insert(requests.begin() + int64_t(random() % (requests.size() + 1)),
                      longOne(random));
    expectSame(requests, {.rowBudget = int32_t(16 + random() % 48),
                          .hostPages = int32_t(110 + random() % 200),
                          .turnTokens = int32_t(random() % 16),
                          .checkHostPages = true});
    ASSERT_FALSE(HasFailure());
    read += stats_.pagesRead, in += stats_.pagesIn, hits += stats_.prefixHits;
  }
  EXPECT_GT(read, 10000);
  EXPECT_GT(in, 1000);
  EXPECT_GT(hits, 100);
}

// The same where those that rest are computed again: a context that is read is not.
TEST_F(EngineLongContextTest, IsNotComputedAgain) {
  std::mt19937 random(12);
  int64_t again = 0;
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(round);
    shape_.paged.pages = 24 + int32_t(random() % 20);
    std::vector<Request> requests = some(8, random);
    requests.push_back(longOne(random));
    expectSame(requests, {.hostPages = int32_t(110 + random() % 200),
                          .comeback = Comeback::Recomputed,
                          .turnTokens = int32_t(1 + random() % 16)});
    ASSERT_FALSE(HasFailure());
    again += stats_.recomputedTokens;
  }
  EXPECT_GT(again, 1000);
}

// A short request that comes later does not wait for the end of a long one.
TEST_F(EngineLongContextTest, OthersRunBesideIt) {
  shape_.paged.pages = 24;
  open({.hostPages = 120});
  const RequestId longest = submit(asking(range(0, 200), 150));
  for (int i = 0; i < 30; ++i)
    ASSERT_TRUE(engine_->step().ok());
  drain();
  const int64_t tokens = int64_t(answers_[longest].tokens.size());
  const RequestId other = submit(asking(range(3, 20), 10));
  while (!answers_[other].ending) {
    ASSERT_TRUE(engine_->step().ok());
    drain();
  }
  EXPECT_FALSE(answers_[longest].ending);
  EXPECT_GT(int64_t(answers_[longest].tokens.size()), tokens); // both had rows
  runAll();
  EXPECT_EQ(answers_[longest].tokens, alone(asking(range(0, 200), 150)));
}

// When others have gone, what it reads comes to the room that they left.
TEST_F(EngineLongContextTest, ComesToRoomThatIsFree) {
  shape_.paged.pages = 64;
  open({.hostPages = 120, .prefixCaching = false});
  submit(asking(range(0, 260), 140));
  while (answers_.empty()) {
    ASSERT_TRUE(engine_->step().ok());
    drain();
  }
  std::vector<RequestId> others;
  for (int i = 0; i < 3; ++i)
    others.push_back(submit(asking(range(i, 60), 2)));
  while (!answers_[others.back()].ending) {
    ASSERT_TRUE(engine_->step().ok());
    drain();
  }
  for (int i = 0; i < 40; ++i) // with time for copies
    ASSERT_TRUE(engine_->step().ok());
  const int64_t read = engine_->stats().pagesRead, calls = engine_->stats().calls;
  for (int i = 0; i < 10; ++i)
    ASSERT_TRUE(engine_->step().ok());
  const int64_t ofCall = (engine_->stats().pagesRead - read) / (engine_->stats().calls - calls);
  EXPECT_GT(ofCall, 0);
  EXPECT_LT(ofCall, 40); // of some 80, with 64 on the device
  runAll();
}

TEST_F(EngineLongContextTest, ACancelledOneGivesAllBack) {
  std::mt19937 random(13);
  for (int round = 0; round < 20; ++round) {
    shape_.paged.pages = 24;
    answers_.clear();
    open({.hostPages = 200, .turnTokens = 4});
    std::vector<RequestId> ids;
    for (int i = 0; i < 3; ++i)
      ids.push_back(submit(longOne(random)));
    for (const Request &r : some(4, random))
      ids.push_back(submit(r));
    for (int i = 0; i < 300 && !engine_->idle(); ++i) {
      ASSERT_TRUE(engine_->step().ok());
      drain();
      if (random() % 20 == 0)
        engine_->cancel(ids[random() % ids.size()]);
    }
    runAll();
    expectNoLeak();
    ASSERT_FALSE(HasFailure());
  }
}

// A device that fails while a long one runs: what ran has failed, and the next is right.
TEST_F(EngineLongContextTest, AFailureForgetsIt) {
  shape_.paged.pages = 24;
  open({.hostPages = 120});
  submit(asking(range(0, 200), 150));
  for (int i = 0; i < 30; ++i)
    ASSERT_TRUE(engine_->step().ok());
  backend_->failAt = 1;
  EXPECT_EQ(engine_->step().code(), Code::Cuda);
  drain();
  const Request r = asking(range(0, 200), 100);
  const RequestId id = submit(r);
  runAll();
  EXPECT_EQ(answers_[id].tokens, alone(r));
  expectNoLeak();
}

TEST_F(EngineLongContextTest, RefusesMoreThanBothHave) {
  shape_.paged.pages = 24;
  open({.hostPages = 32});
  EXPECT_TRUE(engine_->submit(asking(range(0, 100), 100)));
  EXPECT_EQ(engine_->submit(asking(range(0, 200), 100)).status.message(),
            "a prompt of 200 tokens and 100 new tokens need 75 pages of 4 tokens, the KV state has "
            "53: give it more memory, or ask for fewer tokens");
  shape_.paged.readsHostPages = false;
  open({.hostPages = 32});
  EXPECT_EQ(engine_->submit(asking(range(0, 100), 100)).status.message(),
            "a prompt of 100 tokens and 100 new tokens need 50 pages of 4 tokens, the device has "
            "24, and does not read the 32 in host memory where they are: give it more memory, or "
            "ask for fewer tokens");
}

} // namespace
} // namespace gpt2c::rt

// Requests that take turns on the device, with pages in host memory: answers are those of a request
// alone, whatever the copies take.
#include "TurnsFixture.h"

namespace gpt2c::rt {
namespace {

// Twelve sequences of up to 24 pages go through 24 pages of the device.
TEST_F(EngineTurnsTest, AnswersAreThoseOfPlentyOfPages) {
  std::mt19937 random(7);
  int64_t out = 0, in = 0, turns = 0;
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    shape_.paged.pages = 24 + int32_t(random() % 30);
    expectSame(some(12, random), {.hostPages = int32_t(1 + random() % 300),
                                  .turnTokens = int32_t(1 + random() % 16),
                                  .checkHostPages = true});
    ASSERT_FALSE(HasFailure());
    out += stats_.pagesOut, in += stats_.pagesIn, turns += stats_.turnsEnded;
  }
  EXPECT_GT(out, 1000);
  EXPECT_GT(in, 1000);
  EXPECT_GT(turns, 1000);
}

// The same without a page that is ever copied for a sequence of its own.
TEST_F(EngineTurnsTest, AnswersAreThoseComputedAgain) {
  std::mt19937 random(8);
  int64_t tokens = 0;
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    shape_.paged.pages = 24 + int32_t(random() % 30);
    expectSame(some(12, random), {.hostPages = int32_t(1 + random() % 300),
                                  .comeback = Comeback::Recomputed,
                                  .turnTokens = int32_t(1 + random() % 16)});
    ASSERT_FALSE(HasFailure());
    tokens += stats_.recomputedTokens;
  }
  EXPECT_GT(tokens, 1000);
}

// Every request has its first token before any is through.
TEST_F(EngineTurnsTest, AllMakeProgress) {
  shape_.paged.pages = 24;
  open({.hostPages = 300, .turnTokens = 8});
  for (int i = 0; i < 10; ++i)
    submit(asking(range(4 * i, 8), 80));
  size_t begun = 0;
  while (begun < 10 && !engine_->idle()) {
    ASSERT_TRUE(engine_->step().ok());
    while (std::optional<Update> u = engine_->poll()) {
      ASSERT_FALSE(u->ending) << "request " << u->id << " is through, and " << begun << " began";
      begun += answers_[u->id].tokens.empty();
      answers_[u->id].tokens.push_back(u->choice->token);
    }
  }
  EXPECT_EQ(begun, 10u);
  EXPECT_GT(engine_->stats().resting, 0);
}

// What a text was begun with leaves the device and is found again.
TEST_F(EngineTurnsTest, PrefixCacheGoesToTheHost) {
  shape_.paged.pages = 24;
  open({.hostPages = 200});
  submit(asking(range(0, 40), 4));
  runAll();
  for (int i = 0; i < 4; ++i) { // 4 times the pages of the device
    submit(asking(range(7 + i, 90), 4));
    runAll();
  }
  const int64_t hits = engine_->stats().prefixHits;
  submit(asking(range(0, 40), 4));
  runAll();
  EXPECT_EQ(engine_->stats().prefixHits - hits, 36);
  EXPECT_GT(engine_->stats().pagesIn, 0);
  EXPECT_EQ(answers_.rbegin()->second.tokens, answers_.begin()->second.tokens);
}

TEST_F(EngineTurnsTest, ACancelledRequestGivesItsTurnBack) {
  shape_.paged.pages = 24;
  std::mt19937 random(9);
  open({.hostPages = 100, .turnTokens = 4});
  std::vector<RequestId> ids;
  for (const Request &r : some(30, random))
    ids.push_back(submit(r));
  for (int i = 0; i < 200 && !engine_->idle(); ++i) {
    ASSERT_TRUE(engine_->step().ok());
    drain();
    engine_->cancel(ids[random() % ids.size()]);
  }
  runAll();
  expectNoLeak();
}

// A device that fails in the middle of copies: what ran has failed, and the next is right.
TEST_F(EngineTurnsTest, AFailureForgetsWhatIsInHostMemory) {
  shape_.paged.pages = 24;
  open({.hostPages = 100, .turnTokens = 4});
  for (int i = 0; i < 8; ++i)
    submit(asking(range(i, 30), 30));
  for (int i = 0; i < 30; ++i)
    ASSERT_TRUE(engine_->step().ok());
  backend_->failAt = 1;
  EXPECT_EQ(engine_->step().code(), Code::Cuda);
  drain();
  const Request r = asking(range(0, 30), 30);
  const RequestId id = submit(r);
  runAll();
  EXPECT_EQ(answers_[id].tokens, alone(r));
  expectNoLeak();
}

TEST_F(EngineTurnsTest, ADamagedPageIsSeen) {
  shape_.paged.pages = 24;
  for (const bool checks : {true, false}) {
    answers_.clear();
    open({.hostPages = 200, .turnTokens = 8, .checkHostPages = checks});
    for (int i = 0; i < 8; ++i)
      submit(asking(range(4 * i, 60), 30));
    Status status;
    for (int i = 0; i < 500 && status.ok() && !engine_->idle(); ++i) {
      for (int32_t page = 0; page < 200 && checks; ++page)
        backend_->hostPage(page)[0] ^= std::byte(1);
      status = engine_->step();
      drain();
    }
    EXPECT_EQ(status.code(), checks ? Code::Corrupt : Code::Ok) << status.message();
    EXPECT_EQ(status.message().find("in host memory is not what was put there") !=
                  std::string::npos,
              checks)
        << status.message();
  }
}

TEST_F(EngineTurnsTest, RefusesWhatItCannotDo) {
  auto create = [&](EngineOptions options) {
    backend_ = std::make_unique<toy::PagedBackend>(shape_);
    return Engine::create(*backend_, {shape_.vocabulary, shape_.context}, std::move(options))
        .status();
  };
  shape_.paged.pageBytes = 100;
  EXPECT_EQ(create({.hostPages = -1}).code(), Code::Usage);
  EXPECT_EQ(create({.hostPages = 3, .hostBytes = 5}).code(), Code::Usage);
  EXPECT_EQ(create({.hostBytes = 99}).message(),
            "99 bytes of host memory hold no page, one takes 100");
  EXPECT_TRUE(create({.hostBytes = 1000}).ok());
  EXPECT_EQ(backend_->pagedState().hostPages, 10);
}

} // namespace
} // namespace gpt2c::rt

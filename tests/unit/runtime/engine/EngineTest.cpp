// The engine over a toy device: each promise of Engine.h by itself.
#include "EngineFixture.h"
#include "tests/unit/runtime/text/TokenizerToy.h"

namespace gpt2c::rt {
namespace {

using toy::PagedBackend;
using toy::Shape;

TEST_F(EngineTest, OneRequestIsTheSessionsAnswer) {
  open();
  Request r = asking(range(3, 10), 12);
  RequestId id = submit(r);
  EXPECT_FALSE(engine_->idle());
  const int steps = runAll();
  EXPECT_EQ(answers_[id].tokens, alone(r));
  EXPECT_EQ(answers_[id].tokens.size(), 12u);
  ASSERT_TRUE(answers_[id].ending);
  EXPECT_EQ(answers_[id].ending->reason, Finish::Length);
  EXPECT_EQ(answers_[id].ending->promptTokens, 10);
  EXPECT_EQ(answers_[id].ending->newTokens, 12);
  EXPECT_EQ(backend_->calls, 12); // none more than tokens: the length is known before
  EXPECT_EQ(steps, 13);
  EXPECT_EQ(backend_->mostFlying, 2u);
  EXPECT_EQ(engine_->stats().wastedRows, 0);
  expectNoLeak();
}

TEST_F(EngineTest, NextCallsAreBegunBeforeTokensAreRead) {
  open();
  submit(asking({1, 2}, 4));
  ASSERT_TRUE(engine_->step().ok());
  EXPECT_EQ(backend_->calls, 1);
  EXPECT_FALSE(engine_->poll()); // nothing was waited for
  ASSERT_TRUE(engine_->step().ok());
  EXPECT_EQ(backend_->calls, 2);
  EXPECT_TRUE(engine_->poll()); // the first one's
  EXPECT_FALSE(engine_->poll());
}

TEST_F(EngineTest, AStopFoundOneStepLateCostsARow) {
  open();
  Request r = asking(range(7, 6), 30);
  const Tokens whole = alone(r);
  r.stopTokens = {39, whole[9]};
  const Tokens expected = alone(r);
  RequestId id = submit(r);
  runAll();
  EXPECT_EQ(answers_[id].tokens, expected);
  EXPECT_EQ(answers_[id].ending->reason, Finish::Stop);
  EXPECT_EQ(answers_[id].ending->stopToken, expected.back());
  EXPECT_EQ(engine_->stats().wastedRows, 1);
  expectNoLeak();
}

TEST_F(EngineTest, PromptsAreCutToTheRowBudget) {
  open({.rowBudget = 7});
  Request r = asking(range(2, 40), 5);
  RequestId id = submit(r);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(engine_->step().ok());
    EXPECT_EQ(backend_->rows, 7);
  }
  ASSERT_TRUE(engine_->step().ok());
  EXPECT_EQ(backend_->rows, 5);
  runAll();
  drain();
  EXPECT_EQ(answers_[id].tokens, alone(r));
}

TEST_F(EngineTest, APromptDelaysOthersByTheRowBudgetAlone) {
  open({.rowBudget = 8});
  Request talking = asking({1}, 30), longOne = asking(range(1, 50), 3);
  RequestId a = submit(talking);
  ASSERT_TRUE(engine_->step().ok());
  ASSERT_TRUE(engine_->step().ok());
  RequestId b = submit(longOne);
  for (int i = 0; i < 7; ++i) {
    drain();
    const size_t before = answers_[a].tokens.size();
    ASSERT_TRUE(engine_->step().ok());
    drain();
    EXPECT_EQ(answers_[a].tokens.size(), before + 1); // a token with every step
    EXPECT_LE(backend_->rows, 8);
  }
  runAll();
  EXPECT_EQ(answers_[a].tokens, alone(talking));
  EXPECT_EQ(answers_[b].tokens, alone(longOne));
  EXPECT_GT(backend_->mixed, 6);
}

TEST_F(EngineTest, PrefixesAreFoundAndCounted) {
  open();
  Request first = asking(range(0, 22), 6); // five full pages of four, one token alone
  submit(first);
  runAll();
  EXPECT_EQ(engine_->stats().prefixHits, 0);
  EXPECT_EQ(engine_->stats().prefixQueries, 22);
  Request second = asking(range(0, 21), 6);
  second.prompt.push_back(17);
  const int64_t rows = engine_->stats().rows;
  RequestId id = submit(second);
  runAll();
  EXPECT_EQ(engine_->stats().prefixHits, 20);
  EXPECT_EQ(engine_->stats().rows - rows, 2 + 5);
  EXPECT_EQ(answers_[id].ending->cachedTokens, 20);
  EXPECT_EQ(answers_[id].tokens, alone(second));
}

TEST_F(EngineTest, TheLastTokenOfAPromptIsAlwaysComputed) {
  open();
  Request r = asking(range(0, 16), 5);
  submit(r);
  runAll();
  RequestId id = submit(r);
  runAll();
  EXPECT_EQ(answers_[id].ending->cachedTokens, 12); // the fourth page holds the last token
  EXPECT_EQ(answers_[id].tokens, alone(r));
}

TEST_F(EngineTest, AnswersAreFoundByTheNextTurn) {
  open();
  Request r = asking(range(0, 9), 12);
  RequestId id = submit(r);
  runAll();
  Request next = asking(r.prompt, 4);
  next.prompt.insert(next.prompt.end(), answers_[id].tokens.begin(), answers_[id].tokens.end());
  next.prompt.push_back(5);
  RequestId second = submit(next);
  runAll();
  EXPECT_EQ(answers_[second].ending->cachedTokens, 20); // of 20 in the state: 9 + 12 - 1
  EXPECT_EQ(answers_[second].tokens, alone(next));
}

TEST_F(EngineTest, EqualPrefixesAtOnceAreComputedOnce) {
  open();
  std::vector<Request> requests;
  std::vector<RequestId> ids;
  for (int32_t i = 0; i < 6; ++i) {
    requests.push_back(asking(range(0, 24), 3));
    requests.back().prompt.push_back(i);
    ids.push_back(submit(requests.back()));
  }
  runAll();
  EXPECT_EQ(engine_->stats().prefixHits, 5 * 24);
  EXPECT_EQ(engine_->stats().promptRows, 24 + 6);
  for (size_t i = 0; i < ids.size(); ++i)
    EXPECT_EQ(answers_[ids[i]].tokens, alone(requests[i]));
  expectNoLeak();
}

TEST_F(EngineTest, RequestsStartInOrderAndWaitForPages) {
  shape_.paged.pages = 8;
  open();
  Request small = asking({1, 2}, 3), large = asking(range(0, 20), 13), tiny = asking({4}, 1);
  RequestId a = submit(small), b = submit(large), c = submit(tiny);
  ASSERT_TRUE(engine_->step().ok());
  EXPECT_EQ(engine_->stats().running, 1);
  EXPECT_EQ(engine_->stats().waiting, 2);
  // All eight pages are needed; the tiny request behind does not overtake.
  EXPECT_EQ(engine_->whyWaiting(), "needs 8 pages, 7 are free");
  drain();
  std::vector<RequestId> endings;
  while (!engine_->idle()) {
    ASSERT_TRUE(engine_->step().ok());
    while (std::optional<Update> u = engine_->poll()) {
      if (u->ending)
        endings.push_back(u->id);
      take(*u);
    }
  }
  EXPECT_EQ(endings, (std::vector<RequestId>{a, b, c}));
  EXPECT_EQ(answers_[b].tokens, alone(large));
  EXPECT_EQ(engine_->whyWaiting(), "");
  expectNoLeak();
}

TEST_F(EngineTest, RefusalsAreAtOnceAndTakeNothing) {
  shape_.paged.pages = 8;
  open({.maxWaiting = 1});
  Submitted s = engine_->submit(asking({1}, 1000));
  EXPECT_FALSE(s);
  EXPECT_EQ(s.refusal, Refusal::Context);
  EXPECT_EQ(engine_->submit(asking(range(0, 30), 10)).refusal, Refusal::Pages);
  EXPECT_EQ(engine_->submit(asking({40}, 1)).refusal, Refusal::Vocabulary);
  submit(asking({1}, 2));
  s = engine_->submit(asking({1}, 2));
  EXPECT_EQ(s.refusal, Refusal::Full);
  ASSERT_TRUE(engine_->step().ok());
  submit(asking({1}, 2)); // there is room again
  runAll();
  expectNoLeak();
}

TEST_F(EngineTest, CancelEndsARequestAnywhere) {
  shape_.paged.pages = 8;
  open();
  Request r = asking(range(0, 10), 20);
  RequestId running = submit(r), waiting = submit(r), other = submit(asking({3}, 4));
  for (int i = 0; i < 4; ++i)
    ASSERT_TRUE(engine_->step().ok());
  EXPECT_TRUE(engine_->cancel(waiting));
  EXPECT_TRUE(engine_->cancel(running));
  EXPECT_FALSE(engine_->cancel(running));
  EXPECT_FALSE(engine_->cancel(99));
  runAll();
  EXPECT_EQ(answers_[running].ending->reason, Finish::Caller);
  EXPECT_EQ(answers_[running].ending->newTokens, 3);
  EXPECT_EQ(answers_[running].tokens.size(), 3u);
  EXPECT_EQ(answers_[waiting].ending->reason, Finish::Caller);
  EXPECT_TRUE(answers_[waiting].tokens.empty());
  EXPECT_EQ(answers_[other].tokens, alone(asking({3}, 4)));
  EXPECT_EQ(engine_->stats().ended[size_t(Finish::Caller)], 2);
  EXPECT_EQ(engine_->stats().wastedRows, 1);
  expectNoLeak();
}

TEST_F(EngineTest, CallbacksMaySubmitAndCancel) {
  RequestId second = 0, victim = 0;
  Status nested;
  EngineOptions options;
  options.onUpdate = [&](const Update &u) {
    take(u);
    if (u.ending && !second) {
      nested = engine_->step();
      second = engine_->submit(asking({9}, 3)).id;
      engine_->cancel(victim);
    }
  };
  open(options);
  RequestId first = submit(asking({5}, 2));
  victim = submit(asking({6}, 50));
  runAll();
  EXPECT_EQ(nested.code(), Code::Usage);
  EXPECT_TRUE(answers_[first].ending);
  EXPECT_EQ(answers_[second].tokens, alone(asking({9}, 3)));
  EXPECT_EQ(answers_[victim].ending->reason, Finish::Caller);
  victim = submit(asking({6}, 50));
  EXPECT_TRUE(engine_->cancel(victim)); // outside of a step, too
  EXPECT_TRUE(answers_[victim].ending);
  EXPECT_TRUE(engine_->idle());
}

TEST_F(EngineTest, TextEndsBeforeAStopString) {
  test::TemporaryFolder files;
  test::Toy().writeVocabAndMerges(files);
  Result<Tokenizer> tokenizer = Tokenizer::fromFiles(files.path());
  ASSERT_TRUE(tokenizer) << tokenizer.status().message();
  shape_.vocabulary = tokenizer->vocabSize();
  open({.tokenizer = &*tokenizer});
  Request r = asking({1, 2, 3}, 20);
  RequestId whole = submit(r);
  runAll();
  const std::string text = tokenizer->decode(answers_[whole].tokens);
  EXPECT_EQ(answers_[whole].text, text); // all pieces together are the whole
  ASSERT_GT(text.size(), 8u);
  r.stops = {"never in it", text.substr(5, 3)};
  RequestId cut = submit(r);
  runAll();
  EXPECT_EQ(answers_[cut].text, text.substr(0, text.find(r.stops[1])));
  EXPECT_EQ(answers_[cut].ending->reason, Finish::Stop);
  EXPECT_EQ(answers_[cut].ending->stopString, 1);
  r.stops.clear();
  r.stopTokens = {answers_[whole].tokens[4]};
  RequestId stopped = submit(r);
  runAll();
  Tokens shown = answers_[stopped].tokens;
  EXPECT_EQ(shown.back(), r.stopTokens[0]);
  shown.pop_back();
  EXPECT_EQ(answers_[stopped].text, tokenizer->decode(shown));
}

TEST_F(EngineTest, AFailureOfTheDeviceEndsWhatRunsAndNothingElse) {
  for (bool collecting : {false, true}) {
    SCOPED_TRACE(collecting);
    answers_.clear();
    open({.maxSequences = 2});
    Request r = asking(range(0, 12), 8);
    RequestId a = submit(r), b = submit(r), c = submit(r);
    (collecting ? backend_->failCollectAt : backend_->failAt) = 3;
    int failures = 0;
    while (!engine_->idle()) {
      Status s = engine_->step();
      drain();
      if (s.ok())
        continue;
      ++failures;
      EXPECT_EQ(s.code(), Code::Cuda);
      EXPECT_EQ(engine_->stats().pagesUsed, 0);
    }
    EXPECT_EQ(failures, 1);
    EXPECT_EQ(answers_[a].ending->reason, Finish::Failed);
    EXPECT_EQ(answers_[a].ending->status.code(), Code::Cuda);
    EXPECT_EQ(answers_[b].ending->reason, Finish::Failed);
    EXPECT_EQ(answers_[c].tokens, alone(r));
    EXPECT_EQ(answers_[c].ending->cachedTokens, 0); // nothing of before is trusted
    expectNoLeak();
  }
}

TEST_F(EngineTest, NaNsFailOneRequestAlone) {
  open();
  backend_->poison = 33;
  Request good = asking(range(0, 9), 1), bad = asking({33, 1}, 8);
  RequestId a = submit(good), b = submit(bad);
  Request sampled = bad, later = asking({1}, 12);
  sampled.sampling.temperature = 1;
  RequestId c = submit(sampled);
  runAll();
  backend_->poison = alone(later)[3]; // behind the prompt all is well
  RequestId d = submit(later), e = submit(good);
  runAll();
  EXPECT_EQ(answers_[d].ending->status.code(), Code::Quality);
  EXPECT_LE(answers_[d].tokens.size(), 4u);
  EXPECT_EQ(answers_[e].tokens, alone(good));
  EXPECT_EQ(answers_[a].tokens, alone(good));
  EXPECT_EQ(answers_[b].ending->reason, Finish::Failed);
  EXPECT_EQ(answers_[b].ending->status.code(), Code::Quality);
  EXPECT_EQ(answers_[c].ending->status.code(), Code::Quality);
  expectNoLeak();
}

TEST_F(EngineTest, ChecksItsOptions) {
  PagedBackend backend(shape_);
  auto create = [&](EngineOptions o) {
    return Engine::create(backend, {40, 96}, std::move(o)).status();
  };
  EXPECT_EQ(create({.rowBudget = -1}).code(), Code::Usage);
  EXPECT_EQ(create({.rowBudget = 65}).message(),
            "the row budget is 65; a call of this plan on toy takes at most 64");
  EXPECT_TRUE(create({.rowBudget = 64}).ok());
  EXPECT_EQ(backend.allocations, 1); // of all engines together
  Shape none;
  none.paged.pageTokens = 0;
  PagedBackend without(none);
  EXPECT_EQ(Engine::create(without, {40, 96}).status().code(), Code::Unsupported);
}

TEST_F(EngineTest, MoreSequencesThanRunAtOnce) {
  shape_.paged.maxSegments = 5;
  open({.rowBudget = 3});
  EXPECT_EQ(engine_->limits().sequences, 3); // each has a row in every call
  std::vector<Request> requests;
  std::vector<RequestId> ids;
  for (int32_t i = 0; i < 11; ++i) {
    requests.push_back(asking(range(i, 1 + i % 5), 1 + i));
    ids.push_back(submit(requests.back()));
  }
  runAll();
  for (size_t i = 0; i < ids.size(); ++i)
    EXPECT_EQ(answers_[ids[i]].tokens, alone(requests[i]));
}

TEST_F(EngineTest, IsDestroyedWithCallsInFlight) {
  open();
  submit(asking({1, 2, 3}, 10));
  ASSERT_TRUE(engine_->step().ok());
  engine_.reset();
  EXPECT_EQ(backend_->extended().status().code(), Code::Usage); // all were taken
}

} // namespace
} // namespace gpt2c::rt

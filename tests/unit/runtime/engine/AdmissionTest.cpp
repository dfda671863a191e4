#include "runtime/engine/Admission.h"

#include <gtest/gtest.h>

namespace gpt2c::rt {
namespace {

const EngineLimits kLimits{.vocabulary = 50,
                           .context = 64,
                           .pages = 6,
                           .pageTokens = 8,
                           .sequences = 3,
                           .waiting = 2,
                           .hasTokenizer = false};

Request asking(int64_t promptTokens, int64_t maxTokens) {
  Request r;
  r.prompt.assign(size_t(promptTokens), 1);
  r.maxTokens = maxTokens;
  return r;
}

void expectRefused(const Request &request, Refusal refusal, const std::string &text,
                   const EngineLimits &limits = kLimits, int64_t waiting = 0) {
  Verdict v = check(request, limits, waiting);
  EXPECT_EQ(v.refusal, refusal) << v.status.message();
  EXPECT_FALSE(v.status.ok());
  EXPECT_NE(v.status.message().find(text), std::string::npos) << v.status.message();
}

TEST(Admission, CountsTokensAndPages) {
  EXPECT_EQ(stateTokens(10, 1), 10); // nothing follows the last token
  EXPECT_EQ(stateTokens(10, 7), 16);
  EXPECT_EQ(pagesFor(1, 8), 1);
  EXPECT_EQ(pagesFor(8, 8), 1);
  EXPECT_EQ(pagesFor(9, 8), 2);
}

TEST(Admission, TakesWhatFitsExactly) {
  Verdict v = check(asking(40, 9), kLimits, 1); // 48 tokens: all six pages
  EXPECT_EQ(v.refusal, Refusal::None);
  EXPECT_TRUE(v.status.ok());
  EngineLimits manyPages = kLimits;
  manyPages.pages = 100;
  EXPECT_EQ(check(asking(64, 1), manyPages, 0).refusal, Refusal::None);
  EXPECT_EQ(check(asking(1, 64), manyPages, 0).refusal, Refusal::None);
}

TEST(Admission, EveryReasonOfARefusal) {
  expectRefused(asking(0, 1), Refusal::Prompt, "the prompt is empty");
  Request r = asking(3, 1);
  r.prompt[1] = 50;
  expectRefused(r, Refusal::Vocabulary, "token 2 is 50; the model's ids go from 0 to 49");
  r.prompt[1] = -1;
  expectRefused(r, Refusal::Vocabulary, "token 2 is -1");
  expectRefused(asking(3, 0), Refusal::MaxTokens, "0 new tokens are asked for");
  expectRefused(asking(3, -5), Refusal::MaxTokens, "at least one");
  expectRefused(asking(60, 6), Refusal::Context,
                "a prompt of 60 tokens and 6 new tokens are more than the plan's context of 64; at "
                "most 5 can follow");
  expectRefused(asking(65, 1), Refusal::Context, "at most 0 can follow");
  expectRefused(asking(3, INT64_MAX), Refusal::Context, "context of 64");
  expectRefused(asking(40, 10), Refusal::Pages,
                "a prompt of 40 tokens and 10 new tokens need 7 pages of 8 tokens, the KV state "
                "has 6");
  EXPECT_EQ(check(asking(40, 10), kLimits, 0).status.code(), Code::OutOfMemory);
  r = asking(3, 1);
  r.sampling.temperature = -1;
  expectRefused(r, Refusal::Sampling, "temperature is -1");
  r = asking(3, 1);
  r.sampling.logitBias = {{50, 1.0}};
  expectRefused(r, Refusal::Sampling, "logit_bias names token 50");
  r = asking(3, 1);
  r.stopTokens = {4, 77};
  expectRefused(r, Refusal::Vocabulary, "stop token 2 is 77");
  r = asking(3, 1);
  r.stops = {"end"};
  expectRefused(r, Refusal::Stop, "stop strings need a tokenizer");
  EngineLimits withTokenizer = kLimits;
  withTokenizer.hasTokenizer = true;
  EXPECT_EQ(check(r, withTokenizer, 0).refusal, Refusal::None);
  r.stops.push_back("");
  expectRefused(r, Refusal::Stop, "a stop string is empty", withTokenizer);
  expectRefused(asking(3, 1), Refusal::Full, "2 requests wait already", kLimits, 2);
  EXPECT_EQ(check(asking(3, 1), kLimits, 2).status.code(), Code::OutOfMemory);
}

TEST(Admission, EveryReasonHasAName) {
  for (Refusal r :
       {Refusal::None, Refusal::Prompt, Refusal::Vocabulary, Refusal::MaxTokens, Refusal::Context,
        Refusal::Pages, Refusal::Sampling, Refusal::Stop, Refusal::Full})
    EXPECT_STRNE(nameOf(r), "");
  EXPECT_STREQ(nameOf(Refusal::MaxTokens), "max_tokens");
}

TEST(Admission, PagesArePromisedOrTheRequestWaits) {
  const Demand demand{.pages = 4};
  EXPECT_TRUE(admits(demand, {.unreserved = 4, .running = 0}, kLimits));
  EXPECT_EQ(whyNot(demand, {.unreserved = 4, .running = 0}, kLimits), "");
  EXPECT_FALSE(admits(demand, {.unreserved = 3, .running = 0}, kLimits));
  EXPECT_EQ(whyNot(demand, {.unreserved = 3, .running = 0}, kLimits), "needs 4 pages, 3 are free");
  EXPECT_FALSE(admits(demand, {.unreserved = 6, .running = 3}, kLimits));
  EXPECT_EQ(whyNot(demand, {.unreserved = 6, .running = 3}, kLimits),
            "3 sequences run, which is the most");
}

TEST(Admission, HitsThatOthersUseCostNothing) {
  EXPECT_TRUE(admits({.pages = 4, .hits = 3}, {.unreserved = 1}, kLimits));
  EXPECT_FALSE(admits({.pages = 4, .hits = 3}, {.unreserved = 0}, kLimits));
  EXPECT_EQ(whyNot({.pages = 4, .hits = 3}, {.unreserved = 0}, kLimits),
            "needs 1 page beside 3 that others use, too, 0 are free");
  // An idle hit is a page that is no longer available.
  EXPECT_FALSE(admits({.pages = 4, .hits = 3, .idleHits = 3}, {.unreserved = 3}, kLimits));
  EXPECT_TRUE(admits({.pages = 4, .hits = 3, .idleHits = 3}, {.unreserved = 4}, kLimits));
  EXPECT_EQ(whyNot({.pages = 4, .hits = 3, .idleHits = 3}, {.unreserved = 1}, kLimits),
            "needs 4 pages, 1 is free");
}

} // namespace
} // namespace gpt2c::rt

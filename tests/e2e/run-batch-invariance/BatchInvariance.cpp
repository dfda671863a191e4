// e2e_batch_invariance PLAN cpu|cuda [REQUESTS [SEED]]: random requests, greedy and sampled, with
// common prefixes, cancels, few pages and changing row budgets, through an engine, and a third as
// many with pages in host memory. Tokens and log probabilities of each are compared with those of
// the request in an engine by itself, whose prompt is computed in one call, where the plan is
// batch invariant bit for bit. Of an answer that differs a line says where, and what the request
// alone gets when it is computed again. The last line says how many answers differ; the exit code
// is 1 where one does.
#include "tests/e2e/common/RandomRequests.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace gpt2c;
using e2e::fail;
using e2e::need;
using e2e::open;
using rt::Tokens;

namespace {

struct Live {
  rt::Request request;
  std::vector<rt::Choice> choices;
  bool cancelled = false;
};

bool sameBits(const rt::Choice &a, const rt::Choice &b) {
  auto same = [](double x, double y) {
    return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
  };
  return a.token == b.token && same(a.logprob, b.logprob) &&
         std::ranges::equal(a.top, b.top, [&](auto &x, auto &y) {
           return x.token == y.token && same(x.logprob, y.logprob);
         });
}

class Run {
public:
  Run(const rt::Plan::Ptr &plan, bool cuda, unsigned seed)
      : session_(open(plan, cuda)), alone_(open(plan, cuda)), requests_(*session_, seed) {}

  /// An engine with another row budget: prompts are cut in other places.
  void play(int requests, int rowBudget) {
    rt::EngineOptions options;
    options.kvBytes = requests_.kvBytes();
    options.rowBudget = std::min(requests_.mostRows(), rowBudget);
    play(*session_, requests, 12, options);
  }

  /// On a device with room for one, requests take turns, and what they left comes back from host
  /// memory. Many have longer answers: with few it may be that none has to leave.
  void playInTurns(rt::Session &session, int requests) {
    isLong_ = requests >= 15;
    const int maxTokens = isLong_ ? 120 : 12;
    rt::EngineOptions options;
    options.kvBytes = requests_.kvBytesOfOne(maxTokens);
    options.hostBytes = 12 * options.kvBytes;
    options.turnTokens = 2;
    options.checkHostPages = true;
    options.rowBudget = std::min(requests_.mostRows(), 48);
    play(session, requests, maxTokens, options);
  }

  void play(rt::Session &session, int requests, int maxTokens, const rt::EngineOptions &options) {
    auto engine = need(rt::Engine::create(session, options));
    lastId_ = 0;
    while (requests > 0 || !engine->idle()) {
      for (int n = below(4); n > 0 && requests > 0; --n, --requests)
        submit(*engine, maxTokens);
      if (below(isLong_ ? 100 : 10) == 0 && lastId_) {
        const auto id = 1 + rt::RequestId(below(int(lastId_)));
        if (engine->cancel(id))
          live_[id].cancelled = true;
      }
      need(engine->step());
      take(*engine);
    }
    const rt::EngineStats s = engine->stats();
    calls_ += s.calls;
    rows_ += s.rows;
    hits_ += s.prefixHits;
    pagesBack_ += s.pagesIn;
    if (!live_.empty() || s.pagesUsed || s.pagesReserved)
      fail(std::to_string(live_.size()) + " requests have no ending, " +
           std::to_string(s.pagesUsed) + " pages leaked");
  }

  int report() const {
    std::printf(
        "%lld steps, %lld rows, %lld prompt tokens found, %d answers cancelled, %d sampled, "
        "%lld log probabilities compared, %lld pages back from host memory\n",
        (long long)calls_, (long long)rows_, (long long)hits_, cancelled_, sampled_,
        (long long)compared_, (long long)pagesBack_);
    std::printf("%d of %d answers differ from those of the request alone\n", different_, answers_);
    if ((requests_.sharePages() && hits_ == 0) || cancelled_ == 0 || sampled_ == 0 ||
        (isLong_ && pagesBack_ == 0) || rows_ < 4 * calls_)
      fail("there were no prefix hits, cancels, samples, batches or pages in host memory: the test "
           "shows nothing");
    return different_ > 0;
  }

private:
  int below(int n) { return requests_.below(n); }

  void submit(rt::Engine &engine, int maxTokens) {
    rt::Request r = requests_.make(maxTokens, 2);
    r.fillsContext = true;
    r.sampling.logprobs = below(5);
    rt::Submitted s = engine.submit(r);
    if (!s)
      fail("refused: " + s.status.message());
    lastId_ = s.id;
    live_[s.id].request = std::move(r);
  }

  void take(rt::Engine &engine) {
    while (std::optional<rt::Update> u = engine.poll()) {
      Live &l = live_.at(u->id);
      if (u->choice)
        l.choices.push_back(*u->choice);
      if (!u->ending)
        continue;
      if (u->ending->reason == rt::Finish::Failed)
        fail(u->ending->status.message());
      compare(l);
      live_.erase(u->id);
    }
  }

  std::vector<rt::Choice> alone(const rt::Request &request) {
    rt::EngineOptions options;
    options.rowBudget = requests_.mostRows();
    auto engine = need(rt::Engine::create(*alone_, options));
    if (!engine->submit(request))
      fail("the request alone is refused");
    std::vector<rt::Choice> choices;
    while (!engine->idle()) {
      need(engine->step());
      while (std::optional<rt::Update> u = engine->poll())
        if (u->choice)
          choices.push_back(*u->choice);
    }
    return choices;
  }

  /// Whether it is the answer in company or the one alone that is not always the same.
  void tellDifference(const Live &l, const std::vector<rt::Choice> &expected) {
    const auto at = std::ranges::mismatch(l.choices, expected, sameBits);
    const size_t token = size_t(at.in1 - l.choices.begin());
    std::printf("answer %d: %zu prompt tokens, %s, %zu tokens%s, alone %zu; token %zu", answers_,
                l.request.prompt.size(), l.request.sampling.isGreedy() ? "greedy" : "sampled",
                l.choices.size(), l.cancelled ? " until cancelled" : "", expected.size(), token);
    if (at.in1 != l.choices.end() && at.in2 != expected.end())
      std::printf(" is %d (log probability %a), alone %d (%a)", at.in1->token, at.in1->logprob,
                  at.in2->token, at.in2->logprob);
    int likeAlone = 0, likeAnswer = 0;
    constexpr int times = 5;
    for (int i = 0; i < times; ++i) {
      std::vector<rt::Choice> again = alone(l.request);
      again.resize(std::min(again.size(), expected.size()));
      likeAlone += std::ranges::equal(again, expected, sameBits);
      likeAnswer += std::ranges::equal(again, l.choices, sameBits);
    }
    std::printf("; of %d times alone %d are like the one before, %d like the answer\n", times,
                likeAlone, likeAnswer);
  }

  void compare(const Live &l) {
    std::vector<rt::Choice> expected = alone(l.request);
    if (l.cancelled)
      expected.resize(std::min(expected.size(), l.choices.size()));
    ++answers_;
    cancelled_ += l.cancelled;
    sampled_ += !l.request.sampling.isGreedy();
    compared_ += int64_t(expected.size());
    if (!std::ranges::equal(l.choices, expected, sameBits)) {
      ++different_;
      tellDifference(l, expected);
    }
  }

  std::unique_ptr<rt::Session> session_, alone_;
  e2e::RandomRequests requests_;
  std::map<rt::RequestId, Live> live_;
  rt::RequestId lastId_ = 0;
  bool isLong_ = false;
  int answers_ = 0, different_ = 0, sampled_ = 0, cancelled_ = 0;
  int64_t calls_ = 0, rows_ = 0, hits_ = 0, compared_ = 0, pagesBack_ = 0;
};

} // namespace

int main(int argc, char **argv) {
  if (argc < 3 || argc > 5)
    fail("usage: e2e_batch_invariance PLAN cpu|cuda [REQUESTS [SEED]]");
  rt::Plan::Ptr plan = need(rt::Plan::open(argv[1]));
  Run run(plan, !std::strcmp(argv[2], "cuda"), argc > 4 ? unsigned(std::atoi(argv[4])) : 1);
  const int requests = argc > 3 ? std::atoi(argv[3]) : 60;
  for (int budget : {7, 48, 200})
    run.play(requests / 3, budget);
  const std::unique_ptr<rt::Session> few = open(plan, !std::strcmp(argv[2], "cuda"));
  run.playInTurns(*few, requests / 3);
  return run.report();
}

// e2e_engine PLAN cpu|cuda [REQUESTS [SEED]]: random requests, greedy and sampled, with common
// prefixes, cancels and few pages, through the engine; every answer is compared with that of
// Session::generate for the request alone, up to choices that roundings decide.
#include "runtime/plan/KvLayout.h"
#include "runtime/sampling/Sampler.h"
#include "tests/e2e/common/RandomRequests.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

using namespace gpt2c;
using e2e::fail;
using e2e::need;
using e2e::openNamed;
using rt::Tokens;

namespace {

/// Two tokens are as good as equal when logits are this near, relative to the largest one. What
/// e2e_rows finds between calls of several lengths is 1.3e-6 of the largest logit in fp32, and in
/// fp16 and bf16 less than four roundings, of 2^-11 and 2^-8; both tokens may be off by that. What
/// is a rounding off may be another step in a state of bytes.
double tieOf(const plan::PlanT &meta) {
  const bool bytes = meta.kv && rt::isQuantised(*meta.kv);
  return meta.precision == "bf16" ? 0x8p-8 : meta.precision == "fp16" || bytes ? 0x8p-11 : 1e-4;
}

struct Live {
  rt::Request request;
  Tokens tokens;
  std::vector<rt::Choice> choices;
  bool cancelled = false;
};

class Run {
public:
  Run(const rt::Plan::Ptr &plan, const char *device, unsigned seed)
      : session_(openNamed(plan, device)), alone_(openNamed(plan, device)),
        requests_(*session_, seed), tie_(tieOf(plan->meta())),
        reportTie_(plan->meta().precision == "fp16" ? 3 * tie_ : tie_) {
    rt::EngineOptions options;
    options.kvBytes = requests_.kvBytes();
    options.rowBudget = std::min(requests_.mostRows(), 48);
    engine_ = need(rt::Engine::create(*session_, options));
  }

  void play(int requests) {
    int64_t mostWaiting = 0;
    while (requests > 0 || !engine_->idle()) {
      for (int n = below(3); n > 0 && requests > 0 && engine_->stats().waiting < 200;
           --n, --requests)
        submit();
      if (below(15) == 0 && lastId_)
        cancel();
      need(engine_->step());
      take();
      mostWaiting = std::max<int64_t>(mostWaiting, engine_->stats().waiting);
    }
    const rt::EngineStats s = engine_->stats();
    std::printf("%d answers equal those of one request alone, %d of them sampled, %d cancelled, %d "
                "up to a tie, %d log probabilities; %lld steps, %lld rows, %lld prompt tokens "
                "found, %lld rows for "
                "nobody, at most %lld waiting\n",
                equal_, sampled_, cancelled_, ties_, reports_, (long long)s.calls,
                (long long)s.rows, (long long)s.prefixHits, (long long)s.wastedRows,
                (long long)mostWaiting);
    if (!live_.empty() || s.pagesUsed || s.pagesReserved)
      fail(std::to_string(live_.size()) + " requests have no ending, " +
           std::to_string(s.pagesUsed) + " pages leaked");
    if ((requests_.sharePages() && s.prefixHits == 0) || mostWaiting == 0 || s.wastedRows == 0)
      fail("nothing waited, ended late or was found in the prefix cache: the test shows nothing");
  }

private:
  int below(int n) { return requests_.below(n); }

  void submit() {
    rt::Request r = requests_.make(20, 3);
    if (below(2)) // some end with a token, which the host sees one step late
      for (int32_t t = below(8); t < requests_.vocabulary(); t += 8)
        r.stopTokens.push_back(t);
    rt::Submitted s = engine_->submit(r);
    if (!s)
      fail("refused: " + s.status.message());
    lastId_ = s.id;
    live_[s.id].request = std::move(r);
  }

  void cancel() {
    const auto id = lastId_ - rt::RequestId(below(int(std::min<rt::RequestId>(lastId_, 250))));
    if (engine_->cancel(id))
      live_[id].cancelled = true;
  }

  void take() {
    while (std::optional<rt::Update> u = engine_->poll()) {
      Live &l = live_.at(u->id);
      if (u->choice) {
        l.tokens.push_back(u->choice->token);
        l.choices.push_back(*u->choice);
      }
      if (!u->ending)
        continue;
      if (u->ending->reason == rt::Finish::Failed)
        fail(u->ending->status.message());
      compare(l, u->id);
      live_.erase(u->id);
    }
  }

  void compare(const Live &l, rt::RequestId id) {
    rt::GenerateOptions o;
    o.maxNewTokens = l.request.maxTokens;
    o.stopTokens = l.request.stopTokens;
    o.sampling = {l.request.sampling};
    std::vector<rt::Choice> choices;
    o.onToken = [&](size_t, const rt::Choice &choice) {
      choices.push_back(choice);
      return true;
    };
    Tokens expected = need(alone_->generate(std::vector<Tokens>{l.request.prompt}, o)).tokens[0];
    if (l.cancelled)
      expected.resize(std::min(expected.size(), l.tokens.size()));
    cancelled_ += l.cancelled;
    sampled_ += l.request.sampling.needsLogits();
    for (size_t i = 0; i < l.tokens.size() && i < expected.size(); ++i) {
      if (l.tokens[i] != expected[i])
        break;
      compareReports(l, i, choices[i], id);
    }
    if (l.tokens == expected)
      ++equal_;
    else if (isTie(l, expected))
      ++ties_;
    else
      fail("the answer to request " + std::to_string(id) + " is not that of the request alone");
  }

  /// Log probabilities of a request and of the same alone are a tie apart at most, in fp16 three:
  /// those of the sample are 0.009 from fp32's in the median, and up to 0.063 in 5000, with logits
  /// up to 13. Of tokens that are as good as equal any may be among the best.
  void compareReports(const Live &l, size_t at, const rt::Choice &want, rt::RequestId id) {
    const rt::Choice &got = l.choices[at];
    const int32_t asked = l.request.sampling.logprobs;
    if (asked < 0)
      return;
    if (got.top.size() != want.top.size() || got.top.size() != size_t(asked))
      fail("request " + std::to_string(id) + " has " + std::to_string(got.top.size()) +
           " log probabilities, alone " + std::to_string(want.top.size()));
    double apart = std::abs(got.logprob - want.logprob);
    for (size_t i = 0; i < got.top.size(); ++i)
      apart = std::max(apart, std::abs(got.top[i].logprob - want.top[i].logprob));
    ++reports_;
    if (apart <= reportTie_ * 16)
      return;
    Tokens text = l.request.prompt;
    text.insert(text.end(), l.tokens.begin(), l.tokens.begin() + int64_t(at));
    double largest = 16;
    for (float v : need(alone_->prefill(std::vector<Tokens>{text}, {}, true)).logits)
      largest = std::max(largest, double(std::abs(v)));
    if (apart > reportTie_ * largest)
      fail("log probabilities " + std::to_string(at) + " in the answer to request " +
           std::to_string(id) + " are " + std::to_string(apart) +
           " from those of the request alone, with logits up to " + std::to_string(largest));
  }

  /// Whether the tokens where an answer leaves the other one are as good as equal: had its logit
  /// been larger by a tie, and the other's less, this one would have been chosen.
  bool isTie(const Live &l, const Tokens &expected) {
    size_t at = 0;
    while (at < l.tokens.size() && at < expected.size() && l.tokens[at] == expected[at])
      ++at;
    if (at == l.tokens.size() || at == expected.size())
      return false;
    Tokens text = l.request.prompt;
    rt::Sampler sampler(l.request.sampling, text);
    for (size_t i = 0; i < at; ++i) {
      text.push_back(expected[i]);
      if (!sampler.accept(expected[i]).ok())
        return false; // it may not be there
    }
    std::vector<float> logits = need(alone_->prefill(std::vector<Tokens>{text}, {}, true)).logits;
    float largest = 0;
    for (float v : logits)
      largest = std::max(largest, std::abs(v));
    logits[size_t(l.tokens[at])] += float(tie_ / 2 * largest);
    logits[size_t(expected[at])] -= float(tie_ / 2 * largest);
    return need(sampler.choose(logits)).token == l.tokens[at];
  }

  std::unique_ptr<rt::Session> session_, alone_;
  e2e::RandomRequests requests_;
  double tie_, reportTie_;
  std::unique_ptr<rt::Engine> engine_;
  std::map<rt::RequestId, Live> live_;
  rt::RequestId lastId_ = 0;
  int equal_ = 0, sampled_ = 0, cancelled_ = 0, ties_ = 0, reports_ = 0;
};

} // namespace

int main(int argc, char **argv) {
  if (argc < 3 || argc > 5)
    fail("usage: e2e_engine PLAN cpu|cuda|cuda:N,M,.. [REQUESTS [SEED]]");
  rt::Plan::Ptr plan = need(rt::Plan::open(argv[1]));
  Run run(plan, argv[2], argc > 4 ? unsigned(std::atoi(argv[4])) : 1);
  run.play(argc > 3 ? std::atoi(argv[3]) : 120);
  return 0;
}

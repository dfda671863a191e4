// e2e_grammars PLAN cpu|cuda SCHEMAS [SEED]: answers by random JSON schemas, several at once,
// greedy and drawn. Every answer that ends by itself parses and fits its schema.
#include "runtime/engine/Engine.h"
#include "runtime/grammar/Grammar.h"
#include "runtime/text/TextGeneration.h"
#include "tests/e2e/common/Program.h"
#include "tests/e2e/run-grammars/DrawnSchema.h"

#include <chrono>
#include <cstring>
#include <map>

using namespace gpt2c;
using e2e::fail;
using e2e::need;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

namespace {

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Run {
public:
  Run(const rt::Plan::Ptr &plan, bool cuda, unsigned seed)
      : session_(e2e::open(plan, cuda)), tokenizer_(tokenizerOf(*plan)), schemas_(seed),
        random_(seed), ends_(rt::endsOfText(*session_, &tokenizer_)),
        grammars_(&tokenizer_, int32_t(plan->meta().vocab_size), ends_) {
    engine_ = need(rt::Engine::create(*session_, {.maxSequences = 8, .tokenizer = &tokenizer_}));
  }

  void play(int schemas) {
    while (schemas > 0 || !engine_->idle()) {
      for (; schemas > 0 && engine_->stats().waiting + engine_->stats().running < 8; --schemas)
        submit();
      need(engine_->step());
      while (std::optional<rt::Update> u = engine_->poll())
        take(*u);
    }
    std::printf("%d answers fit their schemas, %d were cut by their length; %.2f ms to compile a "
                "schema, %.2f at most\n",
                fit_, cut_, compileSeconds_ * 1e3 / std::max(1, compiled_), slowest_ * 1e3);
    if (fit_ < cut_)
      fail("most answers did not end: the test shows little");
    if (engine_->stats().pagesUsed)
      fail("pages leaked");
  }

private:
  struct Live {
    Json schema;
    std::string text;
  };

  static rt::Tokenizer tokenizerOf(const rt::Plan &plan) {
    const auto blob = plan.tokenizerBlob();
    return need(rt::Tokenizer::fromBytes(
        {reinterpret_cast<const std::uint8_t *>(blob.data()), blob.size()}));
  }

  void submit() {
    Live live{.schema = schemas_.next(), .text = {}};
    rt::Request r;
    r.prompt = tokenizer_.encode("As JSON:\n");
    r.maxTokens = 200;
    r.stopTokens = ends_;
    r.hiddenTokens = ends_;
    if (random_() % 2)
      r.sampling = {.temperature = random_() % 2 ? 0.7 : 1.3, .seed = random_()};
    const Clock::time_point start = Clock::now();
    r.sampling.constraint = need(
        grammars_.compile({.kind = rt::GrammarText::Kind::Schema, .text = live.schema.dump()}));
    compileSeconds_ += secondsSince(start);
    slowest_ = std::max(slowest_, secondsSince(start));
    ++compiled_;
    const rt::Submitted s = engine_->submit(std::move(r));
    if (!s)
      fail("refused: " + s.status.message());
    live_[s.id] = std::move(live);
  }

  void take(const rt::Update &u) {
    Live &l = live_.at(u.id);
    l.text += u.text;
    if (!u.ending)
      return;
    if (u.ending->reason == rt::Finish::Failed)
      fail(u.ending->status.message() + "\n" + l.schema.dump() + "\n" + l.text);
    if (u.ending->reason == rt::Finish::Stop)
      check(l);
    else
      ++cut_;
    live_.erase(u.id);
  }

  void check(const Live &l) {
    const Json value = Json::parse(l.text, nullptr, false);
    std::string why;
    if (value.is_discarded())
      fail("no JSON: " + l.text + "\nby " + l.schema.dump());
    if (!e2e::fits(value, l.schema, l.schema, why))
      fail(why + "\nin " + l.text + "\nby " + l.schema.dump());
    ++fit_;
  }

  std::unique_ptr<rt::Session> session_;
  rt::Tokenizer tokenizer_;
  e2e::DrawnSchemas schemas_;
  std::mt19937 random_;
  std::vector<int32_t> ends_;
  rt::GrammarCompiler grammars_;
  std::unique_ptr<rt::Engine> engine_;
  std::map<rt::RequestId, Live> live_;
  int fit_ = 0, cut_ = 0, compiled_ = 0;
  double compileSeconds_ = 0, slowest_ = 0;
};

} // namespace

int main(int argc, char **argv) {
  if (argc < 4)
    fail("usage: e2e_grammars PLAN cpu|cuda SCHEMAS [SEED]");
  if (!rt::hasGrammars())
    fail("this build has no XGrammar: scripts/setup.sh --grammar", int(rt::Code::Unsupported));
  const rt::Plan::Ptr plan = need(rt::Plan::open(argv[1]));
  Run(plan, std::strcmp(argv[2], "cuda") == 0, argc > 4 ? unsigned(std::atoi(argv[4])) : 1)
      .play(std::atoi(argv[3]));
  return 0;
}

// A plan run by several ranks gives what it gives as one: tokens, logits, the KV state, requests
// through the engine. Every rank has the same bits.
#include "cpu/CpuBackend.h"
#include "frontend/Import.h"
#include "passes/Pipeline.h"
#include "runtime/engine/Engine.h"
#include "runtime/group/GroupBackend.h"
#include "runtime/group/ThreadLinks.h"
#include "runtime/group/ThreadRanks.h"
#include "tests/unit/Nightly.h"
#include "tools/common/verification/GeneratedSession.h"

#include "llvm/ADT/STLExtras.h"

#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <thread>

using namespace gpt2c;

namespace gpt2c::rt {
static void PrintTo(const Division &d, std::ostream *out) {
  *out << d.ranks << " ranks in " << d.stages << " stages, rows " << d.microRows;
}
} // namespace gpt2c::rt

namespace {

constexpr int64_t batch = 4, context = 64;

std::unique_ptr<Module> compiled(std::vector<int64_t> ranks, QuantizeScheme scheme) {
  auto module = llvm::cantFail(importOnnx(GPT2C_SOURCE_DIR "/examples/sample/model.onnx"));
  PassOptions options;
  options.maxBatch = batch;
  options.maxContext = context;
  options.quantize.scheme = scheme;
  options.tensorParallel = std::move(ranks);
  std::vector<Remark> remarks;
  PassContext passes(*module, options, remarks);
  llvm::cantFail(runPipeline(passes, {}));
  return module;
}

using Wrap = std::function<rt::RankLink &(rt::RankLink &)>;

/// The sample model as one and as several ranks, from one plan. `wrap`: what the ranks see in place
/// of their links.
class Both {
public:
  explicit Both(
      const rt::Division &division, QuantizeScheme scheme = QuantizeScheme::None,
      bool batchInvariant = false,
      const Wrap &wrap = [](rt::RankLink &link) -> rt::RankLink & { return link; })
      : module_(compiled(division.teamSize() > 1 ? std::vector<int64_t>{division.teamSize()}
                                                 : std::vector<int64_t>{},
                         scheme)) {
    CodegenOptions options;
    options.maxBatch = batch;
    options.batchInvariant = batchInvariant;
    generated_ = llvm::cantFail(generatePlan(*module_, options));
    one = open([](const rt::Plan::Ptr &p) { return makeCpuBackend(p, {.threads = 1}); });
    many = open([&](const rt::Plan::Ptr &p) {
      return rt::openThreadRanks(
          p, division, [&](rt::RankLink &link) { return makeCpuBackend(p, {1, &wrap(link)}); });
    });
  }

  std::unique_ptr<rt::Session> one, many;

private:
  std::unique_ptr<rt::Session> open(OpenBackend how) {
    return llvm::cantFail(openGenerated(*generated_, how));
  }
  std::unique_ptr<Module> module_;
  std::unique_ptr<GeneratedPlan> generated_;
};

std::vector<rt::Tokens> randomTexts(std::mt19937 &random, int32_t vocabulary, size_t count,
                                    size_t longest) {
  std::vector<rt::Tokens> texts(count);
  for (rt::Tokens &text : texts)
    for (size_t n = 1 + random() % longest; n > 0; --n)
      text.push_back(int32_t(random() % uint32_t(vocabulary)));
  return texts;
}

class Ranks : public testing::TestWithParam<rt::Division> {};

TEST_P(Ranks, GiveTheTokensOfOne) {
  Both both(GetParam());
  std::mt19937 random(11);
  for (int round = 0; round < 4; ++round) {
    const auto texts = randomTexts(random, both.one->plan().meta().vocab_size, batch, 20);
    rt::GenerateOptions options;
    options.maxNewTokens = 20;
    auto expected = both.one->generate(texts, options), got = both.many->generate(texts, options);
    ASSERT_TRUE(expected && got) << got.status().message();
    EXPECT_EQ(got->tokens, expected->tokens);
  }
}

TEST_P(Ranks, DoSoWithWeightsInInt8) {
  Both both(GetParam(), QuantizeScheme::W8A16);
  std::mt19937 random(12);
  const auto texts = randomTexts(random, both.one->plan().meta().vocab_size, batch, 20);
  auto expected = both.one->prefill(texts, {}, true), got = both.many->prefill(texts, {}, true);
  ASSERT_TRUE(expected && got) << got.status().message();
  for (size_t i = 0; i < expected->logits.size(); ++i)
    ASSERT_NEAR(got->logits[i], expected->logits[i], 1e-3 * (1 + std::abs(expected->logits[i])));
}

TEST_P(Ranks, HoldTheStateOfOne) {
  Both both(GetParam());
  std::mt19937 random(13);
  const auto texts = randomTexts(random, both.one->plan().meta().vocab_size, 2, 9);
  ASSERT_TRUE(both.one->prefill(texts) && both.many->prefill(texts));
  const plan::KvPlanT &kv = *both.one->plan().meta().kv;
  const auto tokens = int64_t(std::min(texts[0].size(), texts[1].size()));
  for (const plan::KvPart part : {plan::KvPart::Key, plan::KvPart::Value}) {
    const int layer = kv.layers - 1;
    auto expected = both.one->backend().readKv(layer, part, 2, tokens),
         got = both.many->backend().readKv(layer, part, 2, tokens);
    ASSERT_TRUE(expected && got) << got.status().message();
    ASSERT_EQ(got->shape, expected->shape);
    for (size_t i = 0; i < expected->values<float>().size(); ++i)
      ASSERT_NEAR(got->values<float>()[i], expected->values<float>()[i], 1e-3);
    // What is written is read, by ranks that have copies of a head, too.
    for (float &v : expected->values<float>())
      v = float(random() % 1000);
    ASSERT_TRUE(both.many->backend().writeKv(layer, part, *expected).ok());
    got = both.many->backend().readKv(layer, part, 2, tokens);
    ASSERT_TRUE(got);
    EXPECT_EQ(got->data, expected->data);
  }
}

TEST_P(Ranks, RunTheWholeGraph) {
  Both both(GetParam());
  std::mt19937 random(14);
  const rt::Tokens text = randomTexts(random, both.one->plan().meta().vocab_size, 1, 12)[0];
  auto expected = both.one->logits({{text}}), got = both.many->logits({{text}});
  ASSERT_TRUE(expected && got) << got.status().message();
  ASSERT_EQ(got->shape, expected->shape);
  for (size_t i = 0; i < expected->values<float>().size(); ++i)
    ASSERT_NEAR(got->values<float>()[i], expected->values<float>()[i], 2e-3);
}

/// All requests through an engine over the session, by their order.
std::vector<rt::Tokens> serve(rt::Session &session, const std::vector<rt::Tokens> &prompts) {
  auto engine = rt::Engine::create(session, {});
  EXPECT_TRUE(engine) << engine.status().message();
  std::vector<rt::Tokens> out(prompts.size());
  std::map<rt::RequestId, size_t> numbers;
  for (size_t next = 0; next < prompts.size() || !numbers.empty();) {
    for (; next < prompts.size() && numbers.size() < 12; ++next) {
      rt::Request request;
      request.prompt = prompts[next];
      request.maxTokens = 1 + next % 7;
      if (next % 3 == 0) {
        request.sampling.temperature = 0.8f;
        request.sampling.topK = 5;
        request.sampling.seed = next;
        request.sampling.repetitionPenalty = 1.2f;
      }
      const rt::Submitted s = (*engine)->submit(std::move(request));
      EXPECT_TRUE(bool(s)) << s.status.message();
      numbers[s.id] = next;
    }
    auto update = (*engine)->wait();
    if (!update || !*update) {
      ADD_FAILURE() << update.status().message();
      break;
    }
    const rt::Update &u = **update;
    if (u.choice)
      out[numbers[u.id]].push_back(u.choice->token);
    if (u.ending)
      numbers.erase(u.id);
  }
  return out;
}

TEST_P(Ranks, ServeRequestsAsOne) {
  Both both(GetParam());
  std::mt19937 random(15);
  const size_t count = !test::nightly() ? 60 : GetParam().ranks == 2 ? 10000 : 2000;
  const auto prompts = randomTexts(random, both.one->plan().meta().vocab_size, count, 24);
  EXPECT_EQ(serve(*both.many, prompts), serve(*both.one, prompts));
}

INSTANTIATE_TEST_SUITE_P(Divisions, Ranks,
                         testing::Values(rt::Division(2), rt::Division(4), rt::Division(2, 2),
                                         rt::Division(4, 2, 2), rt::Division(4, 4, 1)),
                         [](const auto &info) {
                           const rt::Division &d = info.param;
                           return std::to_string(d.teamSize()) + "in" + std::to_string(d.stages) +
                                  "by" + std::to_string(d.microRows);
                         });

TEST(Stages, HaveTheBitsOfOne) {
  for (const bool invariant : {false, true}) {
    // Where a row depends on nothing but itself, calls are cut into groups of rows, too.
    Both both(rt::Division(3, 3), QuantizeScheme::None, invariant);
    std::mt19937 random(17);
    const auto texts = randomTexts(random, both.one->plan().meta().vocab_size, batch, 30);
    auto expected = both.one->prefill(texts, {}, true), got = both.many->prefill(texts, {}, true);
    ASSERT_TRUE(expected && got) << got.status().message();
    EXPECT_EQ(got->logits, expected->logits);
    const rt::Tokens next = expected->next;
    expected = both.one->step(next, true), got = both.many->step(next, true);
    ASSERT_TRUE(expected && got) << got.status().message();
    EXPECT_EQ(got->logits, expected->logits);
    const auto prompts = randomTexts(random, both.one->plan().meta().vocab_size, 20, 24);
    EXPECT_EQ(serve(*both.many, prompts), serve(*both.one, prompts));
  }
}

/// Messages from the first stage to the second. The second one takes a message where the first has
/// sent the next one, too, which it does not while it waits for what becomes of this one.
class Overlap {
public:
  explicit Overlap(int messages) : messages_(messages) {}
  rt::RankLink &wrap(rt::RankLink &link) {
    links_.push_back(std::make_unique<Link>(*this, link));
    return *links_.back();
  }
  int taken() const { return taken_; }

private:
  struct Link : rt::RankLink {
    Link(Overlap &all, rt::RankLink &link) : all(all), link(link) {}
    int rank() const override { return link.rank(); }
    int size() const override { return link.size(); }
    int stages() const override { return link.stages(); }
    int microRows() const override { return link.microRows(); }
    rt::Status gather(std::span<const std::byte> mine, std::span<std::byte> to) override {
      return link.gather(mine, to);
    }
    rt::Status send(int to, std::span<const std::byte> bytes) override {
      const rt::Status s = link.send(to, bytes);
      const std::lock_guard lock(all.mutex_);
      all.sent_ += rank() == 0;
      all.changed_.notify_all();
      return s;
    }
    rt::Status receive(int from, std::span<std::byte> bytes) override {
      if (rank() == 1) {
        std::unique_lock lock(all.mutex_);
        const int wanted = std::min(all.taken_ + 2, all.messages_);
        if (!all.changed_.wait_for(lock, std::chrono::seconds(60),
                                   [&] { return all.sent_ >= wanted; }))
          return {rt::Code::Unsupported, "the first stage waits for the second"};
        ++all.taken_;
      }
      return link.receive(from, bytes);
    }
    Overlap &all;
    rt::RankLink &link;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  int messages_, sent_ = 0, taken_ = 0;
  std::vector<std::unique_ptr<Link>> links_;
};

TEST(Stages, WorkAtTheSameTime) {
  constexpr int groups = 6;
  Overlap overlap(groups);
  const int rowsOfGroup = 4;
  Both both(rt::Division(2, 2, rowsOfGroup), QuantizeScheme::None, false,
            [&](rt::RankLink &link) -> rt::RankLink & { return overlap.wrap(link); });
  rt::Backend &stages = both.many->backend();
  ASSERT_TRUE(stages.allocatePages(0).ok());
  const rt::Tokens tokens(size_t(groups * rowsOfGroup) / 2, 7);
  const std::vector<int32_t> pages = {0, 1};
  std::vector<rt::Segment> segments(2);
  for (size_t i = 0; i < segments.size(); ++i) {
    segments[i].tokens = tokens;
    segments[i].pages = std::span(pages).subspan(i, 1);
  }
  const rt::Status begun = stages.extend(segments);
  ASSERT_TRUE(begun.ok()) << begun.message();
  EXPECT_TRUE(stages.extended());
  EXPECT_EQ(overlap.taken(), groups);
}

TEST(RankBits, AreTheSameOnEveryRank) {
  constexpr int ranks = 4;
  auto module = compiled({ranks}, QuantizeScheme::None);
  CodegenOptions options;
  options.maxBatch = batch;
  auto generated = llvm::cantFail(generatePlan(*module, options));
  std::mt19937 random(16);
  auto session = openGenerated(*generated, [&](rt::Plan::Ptr plan) {
    rt::ThreadLinks links(ranks);
    const auto texts = randomTexts(random, plan->meta().vocab_size, batch, 20);
    std::vector<std::vector<float>> logits(ranks);
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        auto backend = makeCpuBackend(plan, {1, &links.link(r)});
        ASSERT_TRUE(backend) << backend.status().message();
        const std::vector<int32_t> past(batch);
        auto first = (*backend)->prefill(texts, past, true);
        ASSERT_TRUE(first) << first.status().message();
        auto second = (*backend)->step(first->next, true);
        ASSERT_TRUE(second) << second.status().message();
        logits[r] = first->logits;
        llvm::append_range(logits[r], second->logits);
      });
    for (std::thread &t : threads)
      t.join();
    for (int r = 1; r < ranks; ++r)
      EXPECT_TRUE(!logits[r].empty() && logits[r] == logits[0]) << "rank " << r;
    return makeCpuBackend(plan);
  });
  ASSERT_TRUE(bool(session)) << llvm::toString(session.takeError());
}

TEST(RankPlans, AreForTheRanksThatTheySay) {
  Both both(2);
  auto session =
      rt::openThreadRanks(rt::Plan::Ptr(&both.one->plan(), [](const rt::Plan *) {}), 3,
                          [](rt::RankLink &) -> rt::Result<std::unique_ptr<rt::Backend>> {
                            return {rt::Code::Usage, "is not opened"};
                          });
  ASSERT_FALSE(session);
  EXPECT_EQ(session.status().code(), rt::Code::Incompatible);
  EXPECT_EQ(session.status().message(),
            "the plan is not for 3 ranks; it is for 1, 2 (gpt2c --tensor-parallel=3 makes one that "
            "is)");
}

} // namespace

// Tuning files, and the lists of configurations they choose from.
#include "schedule/cost/Tuning.h"

#include "templates/attention/Kernels.h"
#include "templates/linear/Kernels.h"
#include "templates/linear/parts/TmaTiles.h"
#include "templates/linear/ring/LinearRing.h"

#include "llvm/ADT/StringSet.h"

#include <gtest/gtest.h>

using namespace gpt2c;

namespace {

TEST(TuningTable, RoundTrips) {
  TuningTable table("sm_90a");
  table.set("b", {"two", 2.5, 3});
  table.set("a \"quoted\"", {"one", 1, 1});
  std::string text = table.text();
  auto again = TuningTable::parse(text);
  ASSERT_TRUE(bool(again)) << toString(again.takeError());
  EXPECT_EQ(again->arch(), "sm_90a");
  EXPECT_EQ(again->text(), text);
  ASSERT_TRUE(again->find("b"));
  EXPECT_EQ(again->find("b")->choice, "two");
  EXPECT_EQ(again->find("b")->microseconds, 2.5);
  EXPECT_FALSE(again->find("c"));
}

TEST(TuningTable, RefusesWhatIsNone) {
  for (const char *text :
       {"", "{", "[]", "null", "{}", R"({"format": "gpt2c tuning 2", "arch": "x", "entries": []})",
        R"({"format": "gpt2c tuning 1", "entries": []})",
        R"({"format": "gpt2c tuning 1", "arch": "sm_80"})",
        R"({"format": "gpt2c tuning 1", "arch": "sm_80", "entries": [1]})",
        R"({"format": "gpt2c tuning 1", "arch": "sm_80", "entries": [{"key": "a"}]})"}) {
    auto table = TuningTable::parse(text);
    EXPECT_FALSE(bool(table)) << text;
    llvm::consumeError(table.takeError());
  }
}

TEST(TunedChoices, TakeWhatIsStillACandidate) {
  TuningTable table("sm_80");
  table.set("known", {"fast"});
  table.set("old", {"gone"});
  TunedChoices choices(table);
  EXPECT_EQ(choices.choose("known", {"model", "fast"}), 1u);
  EXPECT_EQ(choices.choose("old", {"model", "fast"}), 0u);
  EXPECT_EQ(choices.choose("new", {"model", "fast"}), 0u);
  EXPECT_EQ(choices.used(), std::set<std::string>{"known"});
  EXPECT_EQ(choices.stale(), std::set<std::string>{"old"});
}

Target portable() { return Target::of({"sm_80"}); }
Target hopper() { return Target::of({"sm_90a"}); }

LinearShape sized(Scalar type, int64_t rows, int64_t n, int64_t k, Target target = hopper()) {
  LinearShape s{type, type, type, n, k, rows};
  s.tf32 = type == Scalar::F32 && k % 4 == 0;
  s.target = target;
  return s;
}

/// Lists have more than one, none twice; the costs of a kernel that has a model grow but for the
/// first's.
void expectList(const LinearProblem &p, llvm::StringRef kernel) {
  const auto list = linearCandidates(p);
  ASSERT_GT(list.size(), 1u) << kernel.str();
  EXPECT_EQ(list.front().kernel->name(), kernel);
  llvm::StringSet<> names;
  for (const LinearCandidate &c : list)
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
  for (size_t i = 1; i < list.size(); ++i)
    if (list[i].kernel == list[0].kernel && list[0].microseconds) {
      EXPECT_LE(*list[0].microseconds, *list[i].microseconds) << list[i].name;
    }
}

TEST(Candidates, BeginWithTheModelAndHoldNoneTwice) {
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32, i8 = Scalar::I8;
  expectList(sized(f32, 1, 768, 768), "linear_rowdot");
  expectList(sized(f16, 8, 768, 3072), "linear_rows");
  expectList(sized(f16, 512, 768, 768, portable()), "linear_wgmma");
  for (const LinearCandidate &c : linearCandidates(sized(f16, 512, 768, 768, portable())))
    EXPECT_EQ(c.kernel->name(), "linear_wgmma");
  LinearShape simt = sized(f32, 512, 768, 768);
  simt.tf32 = false;
  expectList(simt, "linear_simt");
  expectList(sized(f32, 512, 768, 768), "linear_tf32_wgmma");
  expectList(sized(f32, 512, 768, 768, portable()), "linear_tf32");
  const LinearProblem tma(sized(f16, 512, 768, 3072), {.statistics = true});
  expectList(tma, "linear_tma");
  for (const LinearCandidate &c : linearCandidates(tma))
    EXPECT_EQ(768 % c.kernel->statisticsWidth(c.config), 0) << c.name;
  expectList(sized(f16, 4096, 2304, 768), "linear_tma_persistent");
  LinearProblem int8(sized(i8, 512, 3072, 768));
  int8.int8.yGroup = 128;
  expectList(int8, "linear_int8_tma");
  int8.target = portable();
  expectList(int8, "linear_int8");
  expectList(sized(f16, 32, 50257, 768, portable()), "linear_stream");
  expectList(sized(f16, 1, 50257, 768), "linear_stream_ring");
  expectList(sized(f16, 128, 50257, 768), "linear_stream_tma");
  for (const AttentionKernel *kernel : attentionKernels()) {
    AttentionProblem p{.config = {.headDim = 64, .heads = 12}, .sequences = 8, .queries = 8};
    p.complete();
    const auto list = kernel->candidates(p);
    ASSERT_FALSE(list.empty()) << kernel->name().str();
    llvm::StringSet<> names;
    for (const AttentionCandidate &c : list)
      EXPECT_TRUE(names.insert(c.name).second) << c.name;
  }
}

/// Every state, type, size and target has a kernel.
TEST(Candidates, AttentionAlwaysHasAKernel) {
  for (const auto &archs : std::vector<std::vector<std::string>>{{"sm_90a"}, {"sm_80", "sm_90a"}})
    for (Scalar x : {Scalar::F16, Scalar::F32})
      for (Scalar kv : {x, Scalar::I8})
        for (int headDim : {1, 4, 8, 16, 36, 40, 48, 64, 72, 80, 96, 112, 128, 160, 256, 512})
          for (int64_t queries : {1, 4, 5, 32, 512})
            for (bool last : {false, true})
              for (int kvHeads : {0, 2}) {
                AttentionProblem p{.config = {.x = x, .kv = kv, .headDim = headDim, .heads = 12},
                                   .sequences = 3,
                                   .queries = last ? 1 : queries};
                p.config.kvHeads = kvHeads;
                p.config.last = last;
                p.target = Target::of(archs);
                p.complete();
                EXPECT_FALSE(attentionCandidates(p).empty())
                    << headDim << " " << queries << " " << last << " " << kvHeads;
              }
}

/// Kernels that find no scales are not asked to.
TEST(Candidates, AttentionFindsScalesWhereItsKernelDoes) {
  AttentionProblem p{.config = {.headDim = 64, .heads = 12}, .queries = 128};
  p.target = Target::of({"sm_90a"});
  p.complete();
  p.config.quantise = true;
  EXPECT_TRUE(leaderComputes(p));
  EXPECT_EQ(attentionCandidates(p).front().kernel->name(), "attention_prefill_wgmma");
  p.config.last = true;
  p.queries = 1;
  EXPECT_FALSE(leaderComputes(p));
  EXPECT_TRUE(attentionCandidates(p).empty());
  p.config.given = Given::Scale;
  EXPECT_TRUE(leaderComputes(p));
}

/// The kernels that some candidate is of.
using Kernels = std::set<std::string>;
Kernels kernelsOf(const LinearShape &s, const LinearFusions &fused = {}) {
  Kernels kernels;
  for (const LinearCandidate &c : linearCandidates({s, fused}))
    kernels.insert(c.kernel->name().str());
  return kernels;
}

TEST(LinearCandidates, RingTakesManyWeightsOfFewRows) {
  LinearShape s{Scalar::F16, Scalar::F16, Scalar::F16, 1600, 6400, 1};
  s.target = hopper();
  auto taken = [&](const LinearFusions &f = {}) {
    return linearCandidates(LinearProblem(s, f)).front().kernel->name();
  };
  s.rows = 32;
  EXPECT_EQ(taken(), "linear_tma"); // tiles cost less
  for (int64_t rows : {1, 8, 16}) {
    s.rows = rows;
    EXPECT_EQ(taken(), "linear_ring") << rows;
  }
  // The rows of a long K are more than registers: clusters share it.
  const LinearCandidate many = linearCandidates(LinearProblem(s)).front();
  ASSERT_TRUE(many.get<LinearRingConfig>());
  EXPECT_EQ(many.get<LinearRingConfig>()->splits, 2);
  std::swap(s.n, s.k);
  // Tiles take no norm without statistics of the rows.
  EXPECT_EQ(taken({.norm = NormKind::Layer}), "linear_ring");
  // A norm is not taken out of sums of a part of K.
  for (const LinearCandidate &c : linearCandidates(LinearProblem(s, {.norm = NormKind::Layer})))
    if (const auto *ring = c.get<LinearRingConfig>()) {
      EXPECT_EQ(ring->splits, 1) << c.name;
    }
  for (const LinearCandidate &c : linearCandidates(LinearProblem(s)))
    if (const auto *ring = c.get<LinearRingConfig>()) {
      EXPECT_LE(ringSharedBytes(*ring), halfShared) << c.name;
      EXPECT_GE(ring->columns * divideCeilSigned(s.n, ring->columns), s.n) << c.name;
    }
  s.rows = 33;
  EXPECT_NE(taken(), "linear_ring");
  s.rows = 8;
  s.n = s.k; // 5 MB less a little
  EXPECT_EQ(taken(), "linear_rows");
  s.n = 4096, s.k = 1024; // tiles cost a tenth less than both
  EXPECT_EQ(taken(), "linear_tma");
  s.rows = 1;
  EXPECT_EQ(taken(), "linear_ring");
  s.k = 1000; // no whole number of a quad's loads
  s.n = 8192;
  EXPECT_NE(taken(), "linear_ring");
}

TEST(LinearCandidates, AreOfAllKernelsThatComputeTheProduct) {
  LinearShape s{Scalar::F16, Scalar::F16, Scalar::F16, 768, 3072, 1};
  s.target = hopper();
  EXPECT_EQ(kernelsOf(s), (Kernels{"linear_rowdot", "linear_rows", "linear_ring"}));
  s.rows = 8;
  EXPECT_EQ(kernelsOf(s), (Kernels{"linear_rows", "linear_ring", "linear_tma"}));
  s.rows = 32;
  EXPECT_EQ(kernelsOf(s), (Kernels{"linear_rows", "linear_ring", "linear_tma"}));
  EXPECT_EQ(kernelsOf(s, {.norm = NormKind::Layer}), (Kernels{"linear_rows"}));
  LinearShape int8 = s;
  int8.w = Scalar::I8;
  int8.rows = 128;
  EXPECT_EQ(kernelsOf(int8), (Kernels{"linear_tma_int8_weights"}));
  for (const LinearCandidate &c : linearCandidates(int8))
    EXPECT_LE(tmaSharedBytes(*c.get<LinearTmaInt8WeightsConfig>()), int8.target.sharedBytes)
        << c.name;
  int8.k = 65536; // more gains than there is room for: halves are made in front of the product
  EXPECT_FALSE(computes(int8));
  LinearShape vocabulary{Scalar::F16, Scalar::F16, Scalar::F32, 50257, 768, 128};
  vocabulary.target = hopper();
  EXPECT_EQ(kernelsOf(vocabulary), (Kernels{"linear_stream_tma"}));
  vocabulary.rows = 8;
  EXPECT_EQ(kernelsOf(vocabulary), (Kernels{"linear_stream_tma"}));
  vocabulary.n = 16384; // so few weights that a norm in a launch of its own costs more
  EXPECT_EQ(kernelsOf(vocabulary, {.norm = NormKind::Layer}), (Kernels{"linear_stream"}));
  vocabulary.n = 50257;
  vocabulary.rows = 1;
  EXPECT_EQ(kernelsOf(vocabulary), (Kernels{"linear_stream_ring", "linear_stream"}));
  vocabulary.k = 64 * 1024; // no room for three slots
  EXPECT_EQ(kernelsOf(vocabulary).count("linear_stream_ring"), 0u);
  vocabulary.k = 768;
  s.rows = 4096;
  EXPECT_EQ(kernelsOf(s), (Kernels{"linear_tma_persistent", "linear_tma", "linear_wgmma"}));
  // Nobody else folds a norm into the epilogue, or leaves statistics of its rows.
  EXPECT_EQ(
      kernelsOf(s, {.norm = NormKind::Layer, .plainNorm = true, .normParts = 8, .normWidth = 96}),
      (Kernels{"linear_tma_persistent", "linear_tma"}));
  EXPECT_EQ(
      kernelsOf(s, {.norm = NormKind::Rms, .plainNorm = true, .normParts = 8, .normWidth = 96}),
      (Kernels{"linear_tma_persistent", "linear_tma"}));
  EXPECT_EQ(kernelsOf(s, {.norm = NormKind::Rms, .normParts = 8, .normWidth = 96}), (Kernels{}));
  EXPECT_EQ(kernelsOf(s, {.statistics = true}), (Kernels{"linear_tma_persistent", "linear_tma"}));
  s.target = portable();
  EXPECT_EQ(kernelsOf(s), (Kernels{"linear_wgmma"}));
  s.k = 3070;
  EXPECT_EQ(kernelsOf(s), (Kernels{"linear_mma"}));
}

TEST(LinearCandidates, RingsThatInt8WeightsBecomeHalvesIn) {
  LinearShape s{Scalar::F16, Scalar::I8, Scalar::F16, 0, 0, 0};
  s.target = hopper();
  size_t seen = 0;
  for (int64_t rows : {48, 128, 512})
    for (int64_t width : {128, 256, 768, 1024, 1600})
      for (auto [n, k] :
           {std::pair(3 * width, width), {width, width}, {4 * width, width}, {width, 4 * width}}) {
        s.rows = rows;
        s.n = n;
        s.k = k;
        for (const LinearCandidate &candidate : linearCandidates(s))
          if (auto *c = candidate.get<LinearTmaInt8WeightsConfig>()) {
            const int64_t kTiles = ((k + 127) / 128 + c->splitK - 1) / c->splitK * 2;
            EXPECT_GE(c->stages, std::min<int64_t>(3, kTiles)) << candidate.name << " k=" << k;
            EXPECT_TRUE(c->rawStages % 2 == 0 || c->rawStages * 2 == kTiles) << candidate.name;
            ++seen;
          }
      }
  EXPECT_GT(seen, 100u);
}

/// Products of a GPT-2 of that width, and of its vocabulary.
std::vector<std::pair<int64_t, int64_t>> productsOf(int64_t width) {
  return {{3 * width, width}, {width, 4 * width}, {width, width}, {50257, width}};
}

TEST(LinearCandidates, ThereIsOneForEverySize) {
  std::vector<int64_t> widths = {1, 3, 7, 33, 65, 111, 770, 1001, 4095};
  for (int64_t width = 8; width <= 4096; width += 8)
    widths.push_back(width);
  const LinearFusions norm{
      .norm = NormKind::Layer, .plainNorm = true, .normParts = 8, .normWidth = 16};
  LinearFusions both = norm;
  both.statistics = true;
  const std::array wishes = {LinearFusions{}, LinearFusions{.statistics = true}, norm, both,
                             LinearFusions{.best = true}};
  size_t turn = 0, taken = 0;
  for (int64_t width : widths)
    for (auto [x, w] : {std::pair(Scalar::F16, Scalar::I8),
                        {Scalar::F16, Scalar::F16},
                        {Scalar::F32, Scalar::I8},
                        {Scalar::F32, Scalar::F32},
                        {Scalar::I8, Scalar::I8}})
      for (bool sm90a : {true, false})
        for (int64_t rows : {1, 9, 17, 33, 100, 512, 3000}) {
          // Every width meets every number of rows; products and wishes take turns.
          const auto products = productsOf(width);
          const auto [n, k] = products[turn % products.size()];
          LinearShape s{x, w, x == Scalar::I8 ? Scalar::F16 : x, n, k, rows};
          s.target = sm90a ? hopper() : portable();
          s.tf32 = x == Scalar::F32 && w == Scalar::F32 && k % 4 == 0;
          LinearProblem p(s);
          p.int8.oneCtaPerSm = turn % 2;
          const std::string text = "rows=" + std::to_string(rows) + " n=" + std::to_string(n) +
                                   " k=" + std::to_string(k) + " " + std::to_string(int(x)) +
                                   " x " + std::to_string(int(w)) +
                                   " sm_90a=" + std::to_string(sm90a);
          const LinearKernel *leader = linearLeader(p);
          // Where no kernel has int8 weights or rows, they become halves or floats first.
          if (w != Scalar::I8) {
            ASSERT_TRUE(leader) << text;
          } else if (!leader) {
            for (const LinearKernel *kernel : linearKernels())
              ASSERT_FALSE(kernel->refusal(p).empty() && kernel->slower(p).empty()) << text;
          }
          p.fused = wishes[turn++ % wishes.size()];
          const auto list = linearCandidates(p);
          ASSERT_EQ(list.empty(), !computes(p)) << text;
          if (!leader || !leader->refusal(p).empty())
            continue;
          leader = linearLeader(p); // what is fused may make a rival cheaper
          ++taken;
          ASSERT_FALSE(list.empty()) << text;
          ASSERT_EQ(list.front().kernel, leader) << text;
          for (const LinearCandidate &c : list)
            if (const int width = c.kernel->statisticsWidth(c.config)) {
              ASSERT_EQ(n % width, 0) << c.name << " n=" << n;
            }
        }
  EXPECT_GT(taken, 10000u);
}

TEST(LinearCandidates, WhereNoTileDividesTheColumnsNobodyLeavesStatistics) {
  for (int64_t width : {16, 80, 112}) {
    LinearShape s{Scalar::F16, Scalar::I8, Scalar::F16, width, width, 64};
    s.target = hopper();
    const auto list = linearCandidates({s, {.statistics = true}});
    ASSERT_FALSE(list.empty()) << width;
    EXPECT_FALSE(list.front().get<LinearTmaInt8WeightsConfig>()->statistics) << width;
  }
}

} // namespace

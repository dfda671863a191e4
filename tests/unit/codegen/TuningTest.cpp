// Tuning files, and the lists of configurations they choose from.
#include "codegen/Tuning.h"

#include "codegen/FusedLowerings.h"
#include "codegen/Int8Tiles.h"
#include "codegen/LinearTiles.h"

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

template <typename Config> void expectList(const std::vector<Config> &list, const Config &model) {
  ASSERT_GT(list.size(), 1u);
  EXPECT_EQ(nameOf(list.front()), nameOf(model));
  llvm::StringSet<> names;
  for (const Config &c : list)
    EXPECT_TRUE(names.insert(nameOf(c)).second) << nameOf(c);
}

TEST(Candidates, BeginWithTheModelAndHoldNoneTwice) {
  LinearRowDotConfig rowDot{.cols = 3, .k = 768};
  expectList(candidates(rowDot, 768), rowDot);
  LinearSkinnyConfig skinny{.k = 3072};
  expectList(candidates(skinny), skinny);
  LinearWgmmaConfig wgmma;
  expectList(candidates(wgmma, 512, 768, 768, 227 * 1024), wgmma);
  for (const LinearWgmmaConfig &c : candidates(wgmma, 512, 768, 768, 99 * 1024))
    EXPECT_LE(wgmmaSharedBytes(c), 99u * 1024);
  LinearSimtConfig simt;
  expectList(candidates(simt, 512, 768, 768), simt);
  LinearTmaConfig tma = bestTmaConfig(512, 768, 3072);
  tma.statistics = true;
  expectList(candidates(tma, 512, 768, 3072), tma);
  for (const LinearTmaConfig &c : candidates(tma, 512, 768, 3072))
    EXPECT_EQ(768 % statisticsWidth(c), 0) << nameOf(c);
  const LinearInt8TmaConfig int8 = bestInt8TmaConfig(512, 3072, 768, 0, 128);
  expectList(candidates(int8, 512, 3072, 768), int8);
  expectList(candidates(LinearInt8Config{}), LinearInt8Config{});
  expectList(candidates(LinearStreamConfig{}), LinearStreamConfig{});
  const LinearStreamConfig ring{.rows = 1, .k = 768, .slots = 4};
  expectList(candidates(ring), ring);
  const LinearClusterConfig cluster = bestClusterConfig(32, 2304, 768);
  expectList(candidates(cluster, 32, 2304), cluster);
  const LinearStreamTmaConfig stream{.n = 50257, .k = 768};
  expectList(candidates(stream), stream);
  for (auto kernel : {AttentionKernel::Decode, AttentionKernel::Wgmma, AttentionKernel::Mma,
                      AttentionKernel::Tf32}) {
    const AttentionChoice attention{kernel, {.headDim = 64, .heads = 12}};
    expectList(candidates(attention, 8), attention);
  }
}

/// The kernels that some candidate is of.
using Kernels = std::set<std::string>;
Kernels kernelsOf(const LinearShape &s, const LinearDuties &duties = {}) {
  Kernels kernels;
  for (const LinearConfig &c : linearCandidates(s, duties)) {
    const std::string name = nameOf(c);
    kernels.insert(name.substr(0, name.find(' ')));
  }
  return kernels;
}

TEST(LinearCandidates, AreOfAllKernelsThatComputeTheProduct) {
  LinearShape s{Scalar::F16, Scalar::F16, Scalar::F16, 768, 3072, 1};
  s.hopper = true;
  s.sharedLimit = 227 * 1024;
  EXPECT_EQ(kernelsOf(s), (Kernels{"linear_rowdot", "linear_rows"}));
  s.rows = 8;
  EXPECT_EQ(kernelsOf(s), (Kernels{"linear_rows"}));
  s.rows = 32;
  EXPECT_EQ(kernelsOf(s), (Kernels{"linear_rows", "linear_tma"}));
  EXPECT_EQ(kernelsOf(s, {.norm = FusedNorm::Layer}), (Kernels{"linear_rows"}));
  LinearShape int8 = s;
  int8.w = Scalar::I8;
  int8.rows = 128;
  EXPECT_EQ(kernelsOf(int8), (Kernels{"linear_tma_int8_weights", "linear_cluster"}));
  int8.k = 16384; // more than the registers of a cluster hold
  EXPECT_EQ(kernelsOf(int8).count("linear_cluster"), 0u);
  for (const LinearConfig &c : linearCandidates(int8, {}))
    EXPECT_LE(tmaSharedBytes(std::get<LinearTmaConfig>(c)), int8.sharedLimit) << nameOf(c);
  int8.k = 65536; // more gains than there is room for: halves are made in front of the product
  EXPECT_FALSE(hasWeightsKernel(int8));
  LinearShape vocabulary{Scalar::F16, Scalar::F16, Scalar::F32, 50257, 768, 128};
  vocabulary.hopper = true;
  vocabulary.sharedLimit = 227 * 1024;
  EXPECT_EQ(kernelsOf(vocabulary), (Kernels{"linear_stream_tma"}));
  vocabulary.rows = 8;
  EXPECT_EQ(kernelsOf(vocabulary), (Kernels{"linear_stream"}));
  vocabulary.rows = 1;
  EXPECT_EQ(kernelsOf(vocabulary), (Kernels{"linear_stream_ring", "linear_stream"}));
  vocabulary.k = 64 * 1024; // no room for three slots
  EXPECT_EQ(kernelsOf(vocabulary).count("linear_stream_ring"), 0u);
  vocabulary.k = 768;
  s.rows = 4096;
  EXPECT_EQ(kernelsOf(s), (Kernels{"linear_tma_persistent", "linear_tma", "linear_wgmma"}));
  // Nobody else folds a norm into the epilogue, or leaves statistics of its rows.
  EXPECT_EQ(kernelsOf(s, {.norm = FusedNorm::Layer, .normParts = 8, .normWidth = 96}),
            (Kernels{"linear_tma_persistent", "linear_tma"}));
  EXPECT_EQ(kernelsOf(s, {.statistics = true}), (Kernels{"linear_tma_persistent", "linear_tma"}));
  s.hopper = false;
  EXPECT_EQ(kernelsOf(s), (Kernels{"linear_wgmma"}));
  s.k = 3070;
  EXPECT_EQ(kernelsOf(s), (Kernels{"linear_mma"}));
}

TEST(LinearCandidates, RingsThatInt8WeightsBecomeHalvesInHaveRoomForThreeSlabs) {
  LinearShape s{Scalar::F16, Scalar::I8, Scalar::F16, 0, 0, 0};
  s.hopper = true;
  s.sharedLimit = 227 * 1024;
  size_t seen = 0;
  for (int64_t rows : {48, 128, 512})
    for (int64_t width : {128, 256, 768, 1024, 1600})
      for (auto [n, k] :
           {std::pair(3 * width, width), {width, width}, {4 * width, width}, {width, 4 * width}}) {
        s.rows = rows;
        s.n = n;
        s.k = k;
        for (const LinearConfig &candidate : linearCandidates(s, {}))
          if (auto *c = std::get_if<LinearTmaConfig>(&candidate); c && c->rawStages > 0) {
            const int64_t kTiles = ((k + 127) / 128 + c->splitK - 1) / c->splitK * 2;
            EXPECT_GE(c->stages, std::min<int64_t>(3, kTiles)) << nameOf(candidate) << " k=" << k;
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
  const std::array duties = {
      LinearDuties{}, LinearDuties{.statistics = true},
      LinearDuties{.norm = FusedNorm::Layer, .normParts = 8, .normWidth = 16},
      LinearDuties{.norm = FusedNorm::Layer, .normParts = 8, .normWidth = 16, .statistics = true},
      LinearDuties{.best = true}};
  size_t turn = 0;
  for (int64_t width : widths)
    for (auto [x, w] : {std::pair(Scalar::F16, Scalar::I8),
                        {Scalar::F16, Scalar::F16},
                        {Scalar::F32, Scalar::I8},
                        {Scalar::F32, Scalar::F32}})
      for (bool hopper : {true, false})
        for (int64_t rows : {1, 9, 17, 33, 100, 512, 3000}) {
          // Every width meets every number of rows; products and duties take turns.
          const auto products = productsOf(width);
          const auto [n, k] = products[turn % products.size()];
          LinearShape s{x, w, x, n, k, rows};
          s.hopper = hopper;
          s.sharedLimit = (hopper ? 227 : 99) * 1024;
          s.tf32 = x == Scalar::F32 && w == Scalar::F32 && k % 4 == 0;
          if (w == Scalar::I8 && !hasWeightsKernel(s))
            continue; // the weights become halves or floats first
          const LinearDuties &d = duties[turn++ % duties.size()];
          const auto list = linearCandidates(s, d);
          ASSERT_FALSE(list.empty()) << "rows=" << rows << " n=" << n << " k=" << k << " " << int(x)
                                     << " x " << int(w) << " hopper=" << hopper;
          for (const LinearConfig &c : list)
            if (auto *tma = std::get_if<LinearTmaConfig>(&c); tma && tma->statistics) {
              ASSERT_EQ(n % statisticsWidth(*tma), 0) << nameOf(c) << " n=" << n;
            }
        }
}

TEST(LinearCandidates, WhereNoTileDividesTheColumnsNobodyLeavesStatistics) {
  for (int64_t width : {16, 80, 112}) {
    LinearShape s{Scalar::F16, Scalar::I8, Scalar::F16, width, width, 64};
    s.hopper = true;
    s.sharedLimit = 227 * 1024;
    const auto list = linearCandidates(s, {.statistics = true});
    ASSERT_FALSE(list.empty()) << width;
    EXPECT_FALSE(std::get<LinearTmaConfig>(list.front()).statistics) << width;
  }
}

} // namespace

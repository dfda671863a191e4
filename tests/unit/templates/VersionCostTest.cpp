// What versions of @decode, and the products of vocabularies, are estimated to take, over shapes
// drawn at random: the choice is never what its own estimates say is slower.
#include "PersistentStepTest.h"

#include "schedule/FunctionSchedule.h"
#include "schedule/cost/ScheduleCost.h"
#include "templates/Lowerings.h"
#include "templates/linear/Kernels.h"
#include "templates/linear/rows/LinearRows.h"

#include "llvm/ADT/STLExtras.h"

#include <random>

#include <gtest/gtest.h>

namespace gpt2c {
namespace {

const Target hopper = Target::of({"sm_90a"});

int draw(std::mt19937 &random, int least, int most) {
  return std::uniform_int_distribution<int>(least, most)(random);
}

struct Decode {
  std::unique_ptr<Module> module;
  std::vector<FunctionSchedule> versions;
};
/// The versions of a decode step of one layer for up to 64 sequences.
Decode versionsOf(int width, int heads, int vocabulary) {
  Decode d;
  std::string text = generate_tests::decodeStep("f16", "gelu_tanh", generate_tests::greedy,
                                                {width, heads, vocabulary});
  for (size_t at; (at = text.find("weight<")) != std::string::npos;)
    text.replace(at, 6, "elided"); // no schedule reads them
  auto module = parseModule("module @m {}\n\n" + text, "test.ir");
  if (!module) {
    ADD_FAILURE() << llvm::toString(module.takeError());
    return d;
  }
  d.module = std::move(*module);
  const SymbolBounds none;
  const VersionScheduler scheduler(*d.module, {64, 64, none}, {.target = hopper}, allKernels());
  auto versions = scheduler.of(*d.module->functions.front());
  if (!versions) {
    ADD_FAILURE() << llvm::toString(versions.takeError());
    return d;
  }
  d.versions = std::move(*versions);
  return d;
}

TEST(VersionCost, VersionsForMoreSequencesTakeNoLess) {
  std::mt19937 random(4711);
  const int sizes[] = {40, 56, 64, 72, 80, 88, 104, 128};
  int dropped = 0;
  for (int i = 0; i < 60; ++i) {
    const int headDim = sizes[draw(random, 0, 7)], heads = draw(random, 4, 4096 / headDim / 2);
    const Decode d = versionsOf(headDim * heads, heads, 256 * draw(random, 32, 1000));
    double before = 0, products = 0;
    for (const FunctionSchedule &version : d.versions) {
      const double here = microsecondsOf(version.schedule, version.bounds, hopper.rates);
      EXPECT_LT(before, 1.01 * here) << version.limits << ", " << headDim << " x " << heads;
      before = here;
      double beside = 0;
      for (const Group &group : version.schedule.groups)
        if (!group.get<AttentionGroup>())
          beside += microsecondsOf(group, version.bounds, hopper.rates);
      EXPECT_LT(products, 1.03 * beside) << version.limits << ", " << headDim << " x " << heads;
      products = beside;
    }
    dropped += 5 - int(d.versions.size()); // 1, 8, 16, 32, 64
  }
  EXPECT_LE(dropped, 6) << "estimates of few and of many rows are far from each other";
}

// 920 columns have no part of a tile's width that divides them, and no statistics.
TEST(VersionCost, ANormIsALaunchWhereAKernelOfBothTakesLonger) {
  const LinearFamily &family = allKernels().linear;
  int apart = 0;
  for (int heads : {15, 19, 23, 29}) {
    const Decode d = versionsOf(40 * heads, heads, 32000);
    for (const FunctionSchedule &version : d.versions)
      for (const Group &group : version.schedule.groups) {
        const auto *linear = group.get<LinearGroup>();
        if (!linear)
          continue;
        const LinearProblem &p = linear->problem;
        apart += p.rows == 32 && !p.hasNorm() && !p.isWide() && p.n > p.k;
        if (!p.hasNorm() || family.leaderComputes(p))
          continue;
        LinearProblem alone = p;
        alone.fused.norm = NormKind::None;
        const auto with = linear->taken.kernel->microseconds(p),
                   without = family.leader(alone)->microseconds(alone);
        if (with && without) {
          EXPECT_LE(*with, 1.1 * (*without + 1.8)) << linear->choice.key;
        }
      }
  }
  EXPECT_GT(apart, 0);
}

/// A vocabulary behind a norm.
LinearProblem vocabulary(Scalar weights, int64_t rows, int64_t n, int64_t k) {
  LinearShape s{Scalar::F16, weights, Scalar::F32, n, k, rows};
  s.target = hopper;
  return {s, {.norm = NormKind::Rms, .plainNorm = true}};
}
/// As the estimates of functions have it, and 3 us of a norm that is a launch.
double microsecondsOf(const LinearProblem &p) {
  const LinearKernel *taken = linearLeader(p);
  const bool alone = !taken->refusal(p).empty();
  const double read = 1.8 + double(p.weightBytes()) / 3.9e6;
  return std::max(read, taken->microseconds(p).value_or(0)) + (alone ? 3 : 0);
}

TEST(VersionCost, AVocabularyOfInt8TakesNoLongerThanOneOfFloats) {
  std::mt19937 random(4713);
  for (int i = 0; i < 500; ++i) {
    const int64_t n = 256 * draw(random, 64, 1000), k = 16 * draw(random, 16, 256),
                  rows = draw(random, 1, 8);
    const LinearProblem bytes = vocabulary(Scalar::I8, rows, n, k),
                        floats = vocabulary(Scalar::F16, rows, n, k);
    EXPECT_LE(microsecondsOf(bytes), 1.05 * microsecondsOf(floats) + 3)
        << rows << " x " << n << " x " << k << ": " << linearLeader(bytes)->name().str();
  }
}

TEST(VersionCost, AVocabularyGoesByTheKernelThatTakesLess) {
  std::mt19937 random(4714);
  int streams = 0;
  for (int i = 0; i < 500; ++i) {
    const LinearProblem p =
        vocabulary(i % 2 ? Scalar::I8 : Scalar::F16, draw(random, 1, 4) == 1 ? 8 : 1,
                   256 * draw(random, 64, 1000), 8 * draw(random, 32, 512));
    const LinearKernel *taken = linearLeader(p);
    const LinearKernel &stream = linearStreamTmaKernel();
    if (taken->name() == "linear_rows" && stream.refusal(p.plain()).empty()) {
      EXPECT_LE(rowsMicroseconds(p), *stream.microseconds(p) + 3);
    }
    streams += p.rows == 1 && taken == &stream;
  }
  EXPECT_GT(streams, 50);
  // No estimate of a vocabulary is one of other products.
  LinearProblem narrow = vocabulary(Scalar::F16, 8, 4096, 1024);
  EXPECT_FALSE(linearStreamTmaKernel().microseconds(narrow));
}

} // namespace
} // namespace gpt2c

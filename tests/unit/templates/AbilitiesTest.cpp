// Closed abilities: what a record does not list is refused by its name, and nothing else is.
#include "templates/attention/Kernels.h"
#include "templates/attention/pages/AttentionPages.h"
#include "templates/linear/Kernels.h"
#include "templates/linear/Mlp.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

namespace gpt2c {
namespace {

class Choices {
public:
  explicit Choices(unsigned seed) : random_(seed) {}
  bool coin() { return of(2) == 1; }
  int64_t of(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random_); }
  template <typename T> T oneOf(std::initializer_list<T> list) {
    return list.begin()[of(list.size())];
  }
  Target target() {
    return Target::of(
        {oneOf<std::string>({"sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100"})});
  }

private:
  std::mt19937 random_;
};

LinearProblem linearProblem(Choices &c) {
  const auto [x, w] = c.oneOf<std::pair<Scalar, Scalar>>({{Scalar::F16, Scalar::F16},
                                                          {Scalar::BF16, Scalar::BF16},
                                                          {Scalar::F32, Scalar::F32},
                                                          {Scalar::F16, Scalar::I8},
                                                          {Scalar::BF16, Scalar::I8},
                                                          {Scalar::F32, Scalar::I8},
                                                          {Scalar::I8, Scalar::I8},
                                                          {Scalar::F16, Scalar::F8E4M3},
                                                          {Scalar::F8E4M3, Scalar::F8E4M3}});
  LinearShape s{x,
                w,
                isQuantised(x) ? Scalar::F16 : x,
                64 * (1 + c.of(400)),
                64 * (1 + c.of(80)),
                1 + c.of(600)};
  s.target = c.target();
  s.tf32 = x == Scalar::F32 && w == Scalar::F32 && c.coin();
  s.wGroup = w == Scalar::I8 && c.of(4) == 0 ? 64 : 0;
  LinearProblem p(s);
  LinearFusions &f = p.fused;
  f.norm = c.oneOf({NormKind::None, NormKind::None, NormKind::Layer, NormKind::Rms});
  f.plainNorm = c.coin();
  f.normSums = c.coin();
  f.normParts = c.coin() ? 8 : 0;
  f.normWidth = int(s.k / 8);
  f.statistics = c.of(4) == 0;
  f.best = c.of(4) == 0;
  f.end = c.of(4) == 0 ? ProductEndKind::Gate : ProductEndKind::None;
  f.rowScales = isQuantised(x) && c.coin();
  p.int8.group = isQuantised(x) && c.coin() ? 128 : 0;
  return p;
}

AttentionProblem attentionProblem(Choices &c) {
  AttentionProblem p;
  p.target = c.target();
  const auto [x, kv] = c.oneOf<std::pair<Scalar, Scalar>>({{Scalar::F16, Scalar::F16},
                                                           {Scalar::BF16, Scalar::BF16},
                                                           {Scalar::F32, Scalar::F32},
                                                           {Scalar::F16, Scalar::I8},
                                                           {Scalar::F32, Scalar::I8}});
  AttentionConfig &of = p.config;
  of.x = x;
  of.kv = kv;
  of.heads = 8;
  of.kvHeads = c.coin() ? 2 : 0;
  of.headDim = int(16 * (1 + c.of(8)));
  of.mask = c.coin();
  of.window = c.coin() ? 32 : 0;
  of.last = c.of(4) == 0;
  of.softCap = c.of(4) == 0 ? 30 : 0;
  of.alibi = c.of(4) == 0;
  of.quantise = c.of(4) == 0;
  p.sequences = 1 + c.of(32);
  p.queries = of.last || c.coin() ? 1 : 1 + c.of(300);
  p.tf32 = c.coin();
  p.complete();
  return p;
}

/// A refusal names all of what is missing and, where it tells of sizes, nothing of what is not.
template <typename Kernels, typename Problem>
void expectClosed(const Kernels &kernels, const Problem &p, int &refused) {
  for (const auto *k : kernels) {
    const std::string why = k->refusal(p);
    const auto features = k->needs() - targetOf(p).features;
    const auto missing = p.wants() - k->can();
    if (!features.empty()) {
      EXPECT_EQ(why, "machines without " + features.names()) << k->name().str();
    } else if (!missing.empty()) {
      EXPECT_EQ(why, missing.names()) << k->name().str();
      ++refused;
    }
    if (why.empty() && k->slower(p).empty()) {
      EXPECT_FALSE(k->candidates(p).empty()) << k->name().str();
    }
  }
}

TEST(Abilities, WhatARecordDoesNotListIsRefusedByName) {
  Choices c(5);
  int refused = 0;
  for (int turn = 0; turn < 2000; ++turn) {
    expectClosed(linearKernels(), linearProblem(c), refused);
    expectClosed(attentionKernels(), attentionProblem(c), refused);
  }
  EXPECT_GT(refused, 10000);
}

TEST(Abilities, EveryMemberHasAKernelAndAName) {
  LinearAbilities linear;
  for (const LinearKernel *k : linearKernels())
    linear = linear | k->can();
#define LINEAR_ABILITY(Name, text)                                                                 \
  EXPECT_TRUE(linear.has(LinearAbility::Name)) << text;                                            \
  EXPECT_EQ(nameOf(LinearAbility::Name), text);
#define ATTENTION_ABILITY(Name, text) EXPECT_EQ(nameOf(AttentionAbility::Name), text);
#include "schedule/Abilities.def"
}

/// A kernel of any number of rows takes as many as come wherever it takes some.
TEST(Abilities, AnyRowsAreAnyRows) {
  Choices c(9);
  for (int turn = 0; turn < 1000; ++turn) {
    LinearProblem p = linearProblem(c);
    p.batchInvariant = true;
    for (const LinearKernel *k : linearKernels()) {
      const std::string why = k->refusal(p);
      for (int64_t rows : std::array<int64_t, 3>{1, 33, 1 << 20}) {
        LinearProblem other = p;
        other.rows = rows;
        EXPECT_EQ(k->refusal(other).empty(), why.empty())
            << k->name().str() << " rows " << rows << ": " << why << " / " << k->refusal(other);
      }
    }
  }
}

TEST(Abilities, AMemberOfAnMlpThatNobodyListsIsRefused) {
  auto p = parseMlpProblem("mlp rows=32 d=768 hidden=3072 f16 relu", Target::of({"sm_90a"}));
  ASSERT_TRUE(bool(p));
  EXPECT_EQ(mlpKernels().front()->refusal(*p), "");
  p->norm = p->residual = false;
  EXPECT_EQ(mlpKernels().front()->refusal(*p), "no such norm, no residual in fp16");
}

TEST(Target, ListsHaveWhatAllOfThemHave) {
  using enum Feature;
  const Target hopper = Target::of({"sm_90a"});
  EXPECT_EQ(hopper.multiprocessors, 132);
  EXPECT_EQ(hopper.sharedBytes, wholeShared);
  EXPECT_TRUE(hopper.has({Wgmma, Tma, Clusters, Shared}));
  EXPECT_EQ(hopper.clusters(8), 15);
  const Target ampere = Target::of({"sm_80"});
  EXPECT_EQ(ampere.multiprocessors, 108);
  EXPECT_EQ(ampere.sharedBytes, 163U * 1024);
  EXPECT_TRUE(ampere.features.empty());
  EXPECT_EQ(Target::of({"sm_80", "sm_89"}).multiprocessors, 108);
  EXPECT_EQ(Target::of({"sm_80", "sm_89"}).sharedBytes, leastShared);
  EXPECT_TRUE(Target::of({"sm_90"}).has({Tma, Clusters, Shared}));
  EXPECT_FALSE(Target::of({"sm_90"}).has({Wgmma}));
  EXPECT_FALSE(Target::of({"sm_100a"}).has({Wgmma}));
  EXPECT_FALSE(Target::of({"sm_120"}).has({Shared}));
  // PTX of sm_90 may be loaded on sm_120; that of sm_90a nowhere else.
  EXPECT_EQ(Target::of({"compute_90"}).sharedBytes, leastShared);
  EXPECT_TRUE(Target::of({"compute_90a"}).has({Wgmma, Tma, Clusters, Shared}));
  EXPECT_TRUE(Target::of({"sm_90a", "compute_80"}).features.empty());
}

} // namespace
} // namespace gpt2c

// What several GPUs are estimated to take.
#include "schedule/cost/ParallelCost.h"

#include "schedule/cost/StepCost.h"

#include <gtest/gtest.h>

namespace gpt2c {
namespace {

DecoderShape gpt2(int64_t layers, int64_t width, int64_t heads) {
  DecoderShape s;
  s.layers.resize(size_t(layers));
  s.type = s.weights = s.lastWeights = DType::F16;
  s.width = width;
  s.hidden = 4 * width;
  s.vocabulary = 50257;
  s.heads = s.keyHeads = heads;
  s.headDim = 64;
  return s;
}

double step(const DecoderShape &shape, Division division, int64_t rows) {
  auto rank = shapeOfRank(shape, division.tensor);
  EXPECT_TRUE(bool(rank));
  return stepMicroseconds(*rank, division, rows, {}, {}, {});
}

// What was measured between two GPUs, and what lies between.
TEST(LinkRates, HopsAreThoseMeasured) {
  const LinkRates link;
  EXPECT_EQ(link.allReduce(768, 1), 0);
  EXPECT_DOUBLE_EQ(link.allReduce(768, 2), 0.80);
  EXPECT_DOUBLE_EQ(link.allReduce(8192, 2), 0.80);
  EXPECT_DOUBLE_EQ(link.allReduce(51'200, 2), 0.87);
  EXPECT_DOUBLE_EQ(link.allReduce(204'800, 2), 2.5);
  EXPECT_NEAR(link.allReduce(128'000, 2), (0.87 + 2.5) / 2, 1e-9);
  EXPECT_NEAR(link.allReduce(512 * 1600, 2), 24.7, 0.5);
  EXPECT_NEAR(link.allReduce(4096 * 1600, 2), 71.9, 1.0);
}

TEST(LinkRates, MoreNumbersAndMoreRanksTakeNoLess) {
  const LinkRates link;
  for (int64_t ranks : {2, 4, 8})
    for (int64_t halves = 1, before = 0; halves < 1 << 24; before = halves, halves *= 3) {
      EXPECT_GE(link.allReduce(halves, ranks), link.allReduce(before, ranks));
      EXPECT_GE(link.allReduce(halves, ranks), link.allReduce(halves, ranks / 2));
    }
}

// Of what each rank ends for all, one half travels under the product and the other under the next;
// what is added is read by fewer.
TEST(LinkRates, SumsThatRanksEndHideBehindProducts) {
  const LinkRates link;
  const int64_t count = 4096 * 1600;
  const double moved = double(count) * 2 / 2 / 392e3;
  EXPECT_NEAR(link.scatteredSums(count, 2, 0) - link.scatteredSums(count, 2, 1000), 2 * moved,
              1e-9);
  EXPECT_NEAR(link.scatteredSums(count, 2, moved) - link.scatteredSums(count, 2, 1000), moved,
              1e-9);
  for (int64_t ranks : {2, 4, 8})
    for (double product : {0.0, 20.0, 100.0})
      EXPECT_LT(link.scatteredSums(count, ranks, product), link.sentSums(count, ranks, product));
}

TEST(ParallelCost, ARankHasItsPart) {
  const DecoderShape s = gpt2(48, 1600, 25);
  auto rank = shapeOfRank(s, 2);
  ASSERT_TRUE(bool(rank));
  EXPECT_EQ(rank->heads, 13); // one of zeros
  EXPECT_EQ(rank->hidden, 3200);
  EXPECT_EQ(rank->vocabulary, 25129);
  EXPECT_EQ(rank->width, 1600);
  auto none = shapeOfRank(gpt2(2, 64, 1), 2);
  ASSERT_FALSE(bool(none));
  EXPECT_EQ(llvm::toString(none.takeError()), "1 heads are too few for 2 ranks");
}

TEST(ParallelCost, TheVocabularyCounts) {
  const DecoderShape large = gpt2(48, 1600, 25), small = gpt2(2, 64, 1);
  EXPECT_EQ(slowestStage(large, 1), 1);
  EXPECT_NEAR(slowestStage(large, 2), 0.5, 0.01);
  // Two layers of 64 columns are nothing beside the vocabulary: it is a stage of its own.
  EXPECT_GT(slowestStage(small, 2), 0.95);
}

// Two GPUs halve the weights of a large model, and hops cost less than that; a small one has little
// to halve.
TEST(ParallelCost, LargeModelsGainAndTinyOnesDoNot) {
  const DecoderShape large = gpt2(48, 1600, 25), tiny = gpt2(12, 128, 2);
  EXPECT_LT(step(large, {2, 1}, 1), 0.9 * step(large, {1, 1}, 1));
  EXPECT_LT(step(large, {4, 1}, 1), step(large, {2, 1}, 1));
  EXPECT_GT(step(tiny, {2, 1}, 1), step(tiny, {1, 1}, 1));
}

// Stages do not make one sequence faster, and 32 sequences keep two stages at work.
TEST(ParallelCost, StagesNeedSequences) {
  const DecoderShape large = gpt2(48, 1600, 25);
  EXPECT_GT(step(large, {1, 2}, 1), step(large, {1, 1}, 1));
  EXPECT_LT(step(large, {1, 2}, 32), 1.1 * step(large, {1, 1}, 32));
}

} // namespace
} // namespace gpt2c

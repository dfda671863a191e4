#include "templates/linear/int8_tma/LinearInt8Tma.h"

#include <gtest/gtest.h>

namespace gpt2c {
namespace {

LinearShape int8Shape(int64_t rows, int64_t n, int64_t k) {
  LinearShape s{Scalar::I8, Scalar::I8, Scalar::F16, n, k, rows};
  s.target = Target::of({"sm_90a"});
  return s;
}
Int8Rows rowsOf(int xGroup, int yGroup, bool residual, bool oneCtaPerSm) {
  return {.group = xGroup, .yGroup = yGroup, .residual = residual, .oneCtaPerSm = oneCtaPerSm};
}
std::vector<LinearInt8TmaConfig> int8TmaConfigs(int64_t rows, int64_t n, int64_t k, int xGroup,
                                                int yGroup, bool residual = false,
                                                bool oneCtaPerSm = false) {
  return int8TmaConfigs(int8Shape(rows, n, k), rowsOf(xGroup, yGroup, residual, oneCtaPerSm));
}
LinearInt8TmaConfig bestInt8TmaConfig(int64_t rows, int64_t n, int64_t k, int xGroup, int yGroup,
                                      bool residual = false, bool oneCtaPerSm = false) {
  return bestInt8TmaConfig(int8Shape(rows, n, k), rowsOf(xGroup, yGroup, residual, oneCtaPerSm));
}
double int8TmaCost(const LinearInt8TmaConfig &c, int64_t rows, int64_t n, int64_t k,
                   bool residual) {
  return int8TmaCost(c, int8Shape(rows, n, k), residual);
}

TEST(Int8Tiles, ConfigurationsAreTheKernels) {
  for (int64_t rows : {1, 65, 128, 512, 4096, 16384})
    for (int64_t n : {1, 128, 768, 2304, 50304})
      for (int64_t k : {128, 768, 3072, 6400})
        for (int xGroup : {0, 64, 128})
          for (int yGroup : {0, 64, 128}) {
            if (yGroup > 0 && n % yGroup != 0)
              continue;
            SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(n) + " x " +
                         std::to_string(k) + ", groups " + std::to_string(xGroup) + " and " +
                         std::to_string(yGroup));
            const bool residual = yGroup == 0;
            const auto list = int8TmaConfigs(rows, n, k, xGroup, yGroup, residual);
            ASSERT_FALSE(list.empty());
            for (const LinearInt8TmaConfig &c : list) {
              EXPECT_LE(int8TmaSharedBytes(c) * c.blocks, 227u * 1024);
              EXPECT_GE(c.stages, 2);
              EXPECT_TRUE(yGroup == 0 || (c.bn % yGroup == 0 && c.splitK == 1));
              EXPECT_TRUE(xGroup == 0 || c.bm == 128 || c.bn <= 128);
              EXPECT_LE(c.splitK, (k + 127) / 128) << "a part of K is empty";
              EXPECT_TRUE(c.splitK == 1 || (c.bm * c.bn * 4 <= c.stages * (c.bm + c.bn) * 128 &&
                                            c.bn / 8 % c.splitK == 0));
              EXPECT_TRUE(!c.residual || (residual && n % c.bn == 0 && c.bn % 64 == 0 &&
                                          c.splitK == 1 && !c.stationary && !c.persistent));
              EXPECT_TRUE(!c.stationary ||
                          (n % c.bn == 0 && xGroup == 0 && c.splitK == 1 && c.parts <= n / c.bn));
              EXPECT_TRUE(!c.persistent || (n % c.bn == 0 && xGroup == 0 && k > 1024));
              EXPECT_GT(int8TmaCost(c, rows, n, k, residual), 0);
            }
          }
}

TEST(Int8Tiles, ScalesOfGroupsHaveToFitIntoSharedMemory) {
  EXPECT_FALSE(int8TmaConfigs(512, 768, 32768, 64, 0).empty());
  EXPECT_TRUE(int8TmaConfigs(512, 768, 65536, 64, 0).empty());
  EXPECT_FALSE(int8TmaConfigs(512, 768, 65536, 0, 0).empty());
}

TEST(Int8Tiles, OneWaveOfBlocksMayHaveMultiprocessorsOfTheirOwn) {
  for (int64_t rows : {65, 512, 1024, 4096})
    for (int64_t n : {768, 2304})
      for (const LinearInt8TmaConfig &c : int8TmaConfigs(rows, n, 768, 64, 0, false, true)) {
        const int64_t blocks = (rows + c.bm - 1) / c.bm * ((n + c.bn - 1) / c.bn) * c.splitK;
        EXPECT_EQ(c.oneCtaPerSm, blocks <= 132);
        const unsigned shared = linearInt8Tma("k", c, {{EpilogueStage::ScaleColumn}}).sharedBytes;
        EXPECT_TRUE(!c.oneCtaPerSm || 2 * (shared + 1024) > 228 * 1024);
        EXPECT_LE(shared, 227u * 1024);
      }
  const LinearInt8TmaConfig qkv = bestInt8TmaConfig(512, 2304, 768, 0, 0, false, true);
  EXPECT_TRUE(qkv.oneCtaPerSm && qkv.bm == 64 && qkv.bn == 144 && qkv.stages == 6);
}

TEST(Int8Tiles, TwoWavesOfBlocksShareMultiprocessors) {
  const LinearInt8TmaConfig qkv = bestInt8TmaConfig(1024, 2304, 768, 0, 0, false, true);
  EXPECT_TRUE(qkv.bm == 64 && qkv.bn == 144 && qkv.blocks == 2);
}

TEST(Int8Tiles, ManyRowsOfOneScaleStayInSharedMemory) {
  const LinearInt8TmaConfig qkv = bestInt8TmaConfig(4096, 2304, 768, 0, 0),
                            gelu = bestInt8TmaConfig(4096, 3072, 768, 0, 128);
  EXPECT_TRUE(qkv.stationary && qkv.bn == 144 && qkv.parts == 4);
  EXPECT_TRUE(gelu.stationary && gelu.bn == 128 && gelu.parts == 4);
  EXPECT_FALSE(bestInt8TmaConfig(512, 2304, 768, 0, 0).stationary);
}

TEST(Int8Tiles, RowsOfALongKPassBy) {
  auto persistent = [](int64_t rows, int64_t k, int yGroup) {
    LinearProblem p(int8Shape(rows, 4800, k));
    p.int8 = rowsOf(0, yGroup, false, false);
    return int8TmaCandidatesOf(p, "linear_int8_persistent");
  };
  const auto list = persistent(4096, 1600, 0);
  ASSERT_FALSE(list.empty());
  EXPECT_EQ(list[0].bn, 192);
  EXPECT_EQ(int8TmaCandidatesOf(LinearProblem(int8Shape(4096, 4800, 1600)), "").size(), 0u);
  EXPECT_TRUE(bestInt8TmaConfig(4096, 4800, 1600, 0, 0).persistent);
  EXPECT_TRUE(persistent(4096, 768, 0).empty());
  EXPECT_TRUE(persistent(128, 1600, 0).empty());
}

TEST(Int8Tiles, AResidualIsBroughtByTheCopyEngineWhereItCan) {
  for (int64_t rows : {1024, 4096})
    for (int64_t k : {768, 3072})
      EXPECT_TRUE(bestInt8TmaConfig(rows, 768, k, 0, 0, true).residual) << rows << " x " << k;
}

} // namespace
} // namespace gpt2c

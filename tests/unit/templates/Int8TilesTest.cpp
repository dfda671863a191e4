#include "templates/linear/int8_tma/LinearInt8Tma.h"

#include <gtest/gtest.h>

namespace gpt2c {
namespace {

LinearShape int8Shape(int64_t rows, int64_t n, int64_t k, Scalar x = Scalar::I8) {
  LinearShape s{x, x, Scalar::F16, n, k, rows};
  s.target = Target::of({"sm_90a"});
  return s;
}
Int8Rows rowsOf(int xGroup, int yGroup, bool residual, bool oneCtaPerSm) {
  return {.group = xGroup, .yGroup = yGroup, .residual = residual, .oneCtaPerSm = oneCtaPerSm};
}
std::vector<Int8TmaTile> int8TmaTiles(int64_t rows, int64_t n, int64_t k, int xGroup, int yGroup,
                                      bool residual = false, bool oneCtaPerSm = false) {
  return int8TmaTiles(int8Shape(rows, n, k), rowsOf(xGroup, yGroup, residual, oneCtaPerSm));
}
Int8TmaTile bestInt8TmaTile(int64_t rows, int64_t n, int64_t k, int xGroup, int yGroup,
                            bool residual = false, bool oneCtaPerSm = false) {
  return bestInt8TmaTile(int8Shape(rows, n, k), rowsOf(xGroup, yGroup, residual, oneCtaPerSm));
}

/// What only some of the kernels have.
void expectKernel(const LinearInt8TmaConfig &c, int64_t n, int64_t, int, bool residual) {
  EXPECT_TRUE(!c.residual || (residual && n % c.bn == 0 && c.bn % 64 == 0 && c.splitK == 1));
}
void expectKernel(const LinearInt8StationaryConfig &c, int64_t n, int64_t, int xGroup, bool) {
  EXPECT_TRUE(n % c.bn == 0 && xGroup == 0 && c.parts <= n / c.bn);
}
void expectKernel(const LinearInt8PersistentConfig &c, int64_t n, int64_t k, int xGroup, bool) {
  EXPECT_TRUE(n % c.bn == 0 && xGroup == 0 && k > 1024);
}

void expectKernel(const LinearFp8PersistentConfig &c, int64_t n, int64_t, int xGroup, bool) {
  EXPECT_TRUE(c.x == Scalar::F8E4M3 && n % c.bn == 0 && c.xGroup == xGroup);
}

TEST(Int8Tiles, ConfigurationsAreTheKernels) {
  for (Scalar x : {Scalar::I8, Scalar::F8E4M3})
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
              const LinearShape shape = int8Shape(rows, n, k, x);
              const auto list = int8TmaTiles(shape, rowsOf(xGroup, yGroup, residual, false));
              ASSERT_FALSE(list.empty());
              auto expect = [&](const auto &c) {
                EXPECT_LE(int8TmaSharedBytes(c) * c.blocks, 227u * 1024);
                EXPECT_GE(c.stages, 2);
                EXPECT_TRUE(yGroup == 0 || (c.bn % yGroup == 0 && c.splitK == 1));
                const bool units = xGroup > 0 || x == Scalar::F8E4M3;
                EXPECT_TRUE(!units || c.bm == 128 || c.bn <= 128);
                EXPECT_LE(c.splitK, (k + 127) / 128) << "a part of K is empty";
                EXPECT_TRUE(c.splitK == 1 || (c.bm * c.bn * 4 <= c.stages * (c.bm + c.bn) * 128 &&
                                              c.bn / 8 % c.splitK == 0));
                expectKernel(c, n, k, xGroup, residual);
                EXPECT_GT(int8TmaCost(c, shape, residual), 0);
              };
              for (const Int8TmaTile &tile : list)
                std::visit(expect, tile);
            }
}

TEST(Int8Tiles, ScalesOfGroupsHaveToFitIntoSharedMemory) {
  EXPECT_FALSE(int8TmaTiles(512, 768, 32768, 64, 0).empty());
  EXPECT_TRUE(int8TmaTiles(512, 768, 65536, 64, 0).empty());
  EXPECT_FALSE(int8TmaTiles(512, 768, 65536, 0, 0).empty());
}

TEST(Int8Tiles, OneWaveOfBlocksMayHaveMultiprocessorsOfTheirOwn) {
  for (int64_t rows : {65, 512, 1024, 4096})
    for (int64_t n : {768, 2304})
      for (const auto &c :
           only<LinearInt8TmaConfig>(int8TmaTiles(rows, n, 768, 64, 0, false, true))) {
        const int64_t blocks = (rows + c.bm - 1) / c.bm * ((n + c.bn - 1) / c.bn) * c.splitK;
        EXPECT_EQ(c.oneCtaPerSm, blocks <= 132);
        const unsigned shared = linearInt8Tma("k", c, {{EpilogueStage::ScaleColumn}}).sharedBytes;
        EXPECT_TRUE(!c.oneCtaPerSm || 2 * (shared + 1024) > 228 * 1024);
        EXPECT_LE(shared, 227u * 1024);
      }
  const auto qkv =
      std::get<LinearInt8TmaConfig>(bestInt8TmaTile(512, 2304, 768, 0, 0, false, true));
  EXPECT_TRUE(qkv.oneCtaPerSm && qkv.bm == 64 && qkv.bn == 144 && qkv.stages == 6);
}

TEST(Int8Tiles, TwoWavesOfBlocksShareMultiprocessors) {
  const auto qkv =
      std::get<LinearInt8TmaConfig>(bestInt8TmaTile(1024, 2304, 768, 0, 0, false, true));
  EXPECT_TRUE(qkv.bm == 64 && qkv.bn == 144 && qkv.blocks == 2);
}

TEST(Int8Tiles, ManyRowsOfOneScaleStayInSharedMemory) {
  using Stationary = LinearInt8StationaryConfig;
  const auto qkv = std::get<Stationary>(bestInt8TmaTile(4096, 2304, 768, 0, 0)),
             gelu = std::get<Stationary>(bestInt8TmaTile(4096, 3072, 768, 0, 128));
  EXPECT_TRUE(qkv.bn == 144 && qkv.parts == 4);
  EXPECT_TRUE(gelu.bn == 128 && gelu.parts == 4);
  EXPECT_FALSE(std::holds_alternative<Stationary>(bestInt8TmaTile(512, 2304, 768, 0, 0)));
}

TEST(Int8Tiles, RowsOfALongKPassBy) {
  auto persistent = [](int64_t rows, int64_t k, int yGroup) {
    LinearProblem p(int8Shape(rows, 4800, k));
    p.int8 = rowsOf(0, yGroup, false, false);
    return only<LinearInt8PersistentConfig>(int8TmaCandidates(p));
  };
  const auto list = persistent(4096, 1600, 0);
  ASSERT_FALSE(list.empty());
  EXPECT_EQ(list[0].bn, 192);
  EXPECT_TRUE(
      std::holds_alternative<LinearInt8PersistentConfig>(bestInt8TmaTile(4096, 4800, 1600, 0, 0)));
  EXPECT_TRUE(persistent(4096, 768, 0).empty());
  EXPECT_TRUE(persistent(128, 1600, 0).empty());
}

TEST(Int8Tiles, BlocksTakeTilesOfFp8InTurn) {
  auto best = [](int64_t rows, int64_t n, int64_t k, int xGroup, int yGroup) {
    return bestInt8TmaTile(int8Shape(rows, n, k, Scalar::F8E4M3),
                           rowsOf(xGroup, yGroup, false, false));
  };
  using Persistent = LinearFp8PersistentConfig;
  EXPECT_TRUE(std::holds_alternative<Persistent>(best(4096, 2304, 768, 0, 0)));
  EXPECT_TRUE(std::holds_alternative<Persistent>(best(4096, 3072, 768, 0, 128)));
  EXPECT_TRUE(std::holds_alternative<LinearInt8TmaConfig>(best(128, 2304, 768, 0, 0)));
  // Two sets of sums beside each other: no tile is wider than registers allow.
  for (const Int8TmaTile &tile : int8TmaTiles(int8Shape(4096, 2304, 768, Scalar::F8E4M3), {}))
    std::visit([](const auto &c) { EXPECT_LE(c.bn, c.bm == 64 ? 96 : 192); }, tile);
}

TEST(Int8Tiles, AResidualIsBroughtByTheCopyEngineWhereItCan) {
  for (int64_t rows : {1024, 4096})
    for (int64_t k : {768, 3072})
      EXPECT_TRUE(std::get<LinearInt8TmaConfig>(bestInt8TmaTile(rows, 768, k, 0, 0, true)).residual)
          << rows << " x " << k;
}

} // namespace
} // namespace gpt2c

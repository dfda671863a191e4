#include "templates/linear/parts/TmaTiles.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace gpt2c {
namespace {

LinearShape halfShape(int64_t rows, int64_t n, int64_t k) {
  LinearShape s{Scalar::F16, Scalar::F16, Scalar::F16, n, k, rows};
  s.target = Target::of({"sm_90a"});
  return s;
}
std::vector<TmaTile> tmaTiles(int64_t rows, int64_t n, int64_t k) {
  return tmaTiles(halfShape(rows, n, k));
}
TmaTile bestTmaTile(int64_t rows, int64_t n, int64_t k, int normParts = 0,
                    bool statistics = false) {
  LinearProblem p(halfShape(rows, n, k));
  p.fused.normParts = normParts;
  p.fused.statistics = statistics;
  return bestTmaTile(p);
}
/// That, which is of linear_tma.
LinearTmaConfig bestTmaConfig(int64_t rows, int64_t n, int64_t k, int normParts = 0,
                              bool statistics = false) {
  return std::get<LinearTmaConfig>(bestTmaTile(rows, n, k, normParts, statistics));
}
LinearTmaPersistentConfig bestPersistent(int64_t rows, int64_t n, int64_t k) {
  return std::get<LinearTmaPersistentConfig>(bestTmaTile(rows, n, k));
}
bool isPersistent(const TmaTile &tile) {
  return std::holds_alternative<LinearTmaPersistentConfig>(tile);
}

constexpr int64_t kRows[] = {1, 17, 64, 65, 128, 512, 1000, 4096, 16384};
constexpr int64_t kColumns[] = {1, 33, 768, 2304, 3072, 6400, 50257};
constexpr int64_t kDepths[] = {8, 64, 72, 768, 1600, 3072, 6400};

void forEachSize(auto &&body) {
  for (int64_t rows : kRows)
    for (int64_t n : kColumns)
      for (int64_t k : kDepths) {
        SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(n) + " x " + std::to_string(k));
        body(rows, n, k);
      }
}

TEST(LinearTiles, ConfigurationsAreTheKernels) {
  forEachSize([](int64_t rows, int64_t n, int64_t k) {
    const auto list = tmaTiles(rows, n, k);
    ASSERT_FALSE(list.empty());
    for (const TmaTile &tile : list)
      std::visit(
          [&](const auto &c) {
            EXPECT_LE(tmaSharedBytes(c) * c.blocks, 227u * 1024);
            EXPECT_GE(c.stages, 2);
            EXPECT_EQ(c.bn % (c.bn == 200 ? 8 : 16), 0);
            EXPECT_LE(c.splitK, (k + 63) / 64) << "a part of K is empty";
            EXPECT_EQ(c.bn / 8 % c.splitK, 0) << "columns do not divide among the parts";
            EXPECT_LE(c.splitK, 8) << "more than a portable cluster";
            EXPECT_GT(tmaCost(c, halfShape(rows, n, k)), 0);
          },
          tile);
    for (const TmaTile &tile : list)
      if (const auto *c = std::get_if<LinearTmaPersistentConfig>(&tile)) {
        EXPECT_TRUE(c->bn <= 144 ||
                    (c->bn <= (c->cooperative ? 256 : 192) && (n % c->bn == 0 || storesLines(*c))));
      }
  });
}

TEST(LinearTiles, ManyTilesGoToPersistentBlocks) {
  EXPECT_TRUE(isPersistent(bestTmaTile(4096, 2304, 768)));
  EXPECT_TRUE(isPersistent(bestTmaTile(16384, 3072, 768)));
  EXPECT_FALSE(isPersistent(bestTmaTile(512, 2304, 768)));
}

TEST(LinearTiles, LongSumsHaveWiderTilesThatFillWholeWaves) {
  const LinearTmaPersistentConfig gated = bestPersistent(512, 16384, 2048); // 256 tiles for 132 SMs
  EXPECT_EQ(gated.bn, 256);
  EXPECT_EQ(gated.rasterGroup, 16) << "L2 does not hold the weights";
  EXPECT_EQ(bestPersistent(512, 6400, 1600).bn, 200); // 128 tiles
  EXPECT_EQ(bestPersistent(4096, 3072, 768).rasterGroup, 1);
}

TEST(LinearTiles, StatisticsOfLinesAreOf64ColumnsWhereTilesDoNotDivideThem) {
  LinearTmaPersistentConfig c;
  c.cooperative = true;
  c.bn = 256;
  c.n = 1600;
  EXPECT_EQ(statisticsWidth(c), 64);
  c.n = 2048;
  EXPECT_EQ(statisticsWidth(c), 256);
  c.y = Scalar::F32;
  c.n = 1600;
  EXPECT_EQ(statisticsWidth(c), 256) << "rows that do not leave in lines";
}

TEST(LinearTiles, FewTilesWithALongSumShareIt) {
  EXPECT_GT(bestTmaConfig(128, 768, 3072).splitK, 1);
  EXPECT_EQ(bestTmaConfig(512, 3072, 768).splitK, 1);
}

TEST(LinearTiles, NarrowTilesOf128RowsHaveAMultiprocessorEach) {
  for (int64_t rows : {100, 128}) {
    const LinearTmaConfig c = bestTmaConfig(rows, 2304, 768, 48);
    EXPECT_EQ(c.bm, 64);
    EXPECT_EQ(c.bn, 48);
    EXPECT_GT(2 * tmaSharedBytes(c), 227u * 1024);
    EXPECT_EQ(bestTmaConfig(rows, 3072, 768, 24).bn, 96);
  }
  EXPECT_LT(2 * tmaSharedBytes(bestTmaConfig(64, 768, 768)), 227u * 1024);
}

TEST(LinearTiles, EveryTileHasARingOfHalfAMultiprocessorWhereThatHasRoom) {
  const auto list = tmaTiles(1024, 2304, 768);
  auto rings = [&](int bm, int bn) {
    return std::count_if(list.begin(), list.end(), [&](const TmaTile &tile) {
      const auto *c = std::get_if<LinearTmaConfig>(&tile);
      return c && c->bm == bm && c->bn == bn && c->splitK == 1;
    });
  };
  EXPECT_EQ(rings(64, 144), 2);
  EXPECT_EQ(rings(128, 144), 2);
  EXPECT_EQ(rings(128, 32), 2);
}

TEST(LinearTiles, NarrowTilesOfManyRowsAndALongSumGoColumnsFirst) {
  EXPECT_TRUE(bestTmaConfig(1024, 768, 3072, 0, true).rasterAlongN);
  EXPECT_FALSE(bestTmaConfig(512, 768, 3072, 0, true).rasterAlongN);
}

TEST(LinearTiles, ATileThatLeavesStatisticsDividesTheColumns) {
  const LinearTmaConfig c = bestTmaConfig(512, 1024, 1024, 0, true);
  EXPECT_EQ(1024 % statisticsWidth(c), 0);
  EXPECT_GT(2 * tmaSharedBytes(c), 227u * 1024); // a block of 16 k-tiles
}

} // namespace
} // namespace gpt2c

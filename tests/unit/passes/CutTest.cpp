// Heads and columns dealt to ranks: every one is somebody's, and nobody's neighbours are mixed up.
#include "passes/shard/Cut.h"

#include "llvm/ADT/STLExtras.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

using namespace gpt2c;

namespace {

TEST(HeadDeal, EveryQueryIsDealtOnceWithItsKey) {
  for (int64_t keyHeads : {1, 2, 3, 4, 5, 8, 12, 25})
    for (int64_t group : {1, 2, 3, 4, 7, 8})
      for (int64_t ranks : {1, 2, 3, 4, 6, 8}) {
        SCOPED_TRACE(testing::Message() << keyHeads << " x " << group << " over " << ranks);
        const HeadDeal deal = dealHeads(keyHeads * group, keyHeads, ranks);
        const int64_t q = deal.queriesOfRank(), k = deal.keysOfRank();
        ASSERT_EQ(int64_t(deal.queries.size()), ranks * q);
        ASSERT_EQ(q % k, 0) << "heads of a rank share its keys evenly";
        std::multiset<int64_t> dealt;
        for (int64_t r = 0; r < ranks; ++r)
          for (int64_t i = 0; i < q; ++i)
            if (const int64_t head = deal.queries[r * q + i]; head >= 0) {
              dealt.insert(head);
              EXPECT_EQ(deal.keys[r * k + i / (q / k)], head / group) << "rank " << r;
            }
        EXPECT_EQ(int64_t(dealt.size()), keyHeads * group);
        EXPECT_EQ(int64_t(std::set<int64_t>(dealt.begin(), dealt.end()).size()), keyHeads * group);
      }
}

TEST(HeadDeal, TakesNoMoreZerosThanItMust) {
  EXPECT_EQ(dealHeads(25, 25, 2).queriesOfRank(), 13);
  EXPECT_EQ(dealHeads(32, 8, 4).queriesOfRank(), 8);
  const HeadDeal shared = dealHeads(14, 2, 4); // Qwen 2 0.5B
  EXPECT_EQ(shared.queriesOfRank(), 4);
  EXPECT_EQ(shared.keys, (std::vector<int64_t>{0, 0, 1, 1}));
  EXPECT_EQ(idleRank(shared), -1);
  EXPECT_EQ(idleRank(dealHeads(2, 2, 3)), 2);
  EXPECT_EQ(idleRank(dealHeads(9, 3, 4)), 3);
}

TEST(Cut, OfColumnsLeavesNoRankWithout) {
  EXPECT_EQ(contiguousCut(12, 4), (Cut{3, {0, 1, 2, 3}}));
  EXPECT_EQ(contiguousCut(11, 2), (Cut{6, {0, 1}}));
  EXPECT_EQ(contiguousCut(12, 2, 4), (Cut{8, {0, 1}})) << "whole groups of 4";
  EXPECT_TRUE(contiguousCut(4, 2, 4).units.empty());
  EXPECT_TRUE(contiguousCut(5, 4).units.empty()) << "2 + 2 + 1 + 0";
  EXPECT_TRUE(dealsOnce({6, {0, 1}}, 11));
  EXPECT_FALSE(dealsOnce({6, {0, 0}}, 11));
  EXPECT_FALSE(dealsOnce({6, {0, -1}}, 11));
}

TEST(Cut, ASliceIsWhereARankHasIt) {
  const Cut packed =
      packedCut(dealHeads(3, 3, 2), 3, 3, 4); // [0 1 | 2 -], of queries, keys, values
  ASSERT_EQ(packed.units, (std::vector<int64_t>{0, 1, 3, 4, 6, 7, 2, -1, 5, -1, 8, -1}));
  const CutSlice keys = sliceOf(packed, 2, 12, 24);
  EXPECT_EQ(keys.begin, 8);
  EXPECT_EQ(keys.cut, (Cut{4, {0, 1, 2, -1}}));
  EXPECT_TRUE(sliceOf(packed, 2, 2, 14).cut.units.empty()) << "halves of heads";
  EXPECT_TRUE(sliceOf({4, {0, 2, 1, 3}}, 2, 0, 12).cut.units.empty()) << "another one at the end";
}

} // namespace

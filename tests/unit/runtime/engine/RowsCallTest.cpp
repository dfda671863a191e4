// Segments as arguments of @extend, and what is refused.
#include "runtime/device/RowsCall.h"

#include <gtest/gtest.h>

namespace gpt2c::rt {
namespace {

class RowsCallTest : public ::testing::Test {
protected:
  /// Of no more than 10 rows, in pages of 4.
  RowsLimits limits_{
      {.pageTokens = 4, .pages = 6, .maxRows = 10, .maxSegments = 3, .pageBytes = 1}, 20, 100, 3};
  Tokens tokens_{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  std::vector<int32_t> pages_{5, 0, 3, 1, 2};

  Segment segment(int32_t past, size_t count, size_t firstPage = 0) const {
    return {.tokens = std::span(tokens_).first(count),
            .past = past,
            .pages = std::span(pages_).subspan(firstPage)};
  }
  void expectRefused(std::vector<Segment> segments, const std::string &why, int32_t carried = 0) {
    Status s = checkSegments(segments, limits_, carried);
    EXPECT_EQ(s.code(), Code::Usage);
    EXPECT_NE(s.message().find(why), std::string::npos) << s.message();
  }
};

TEST_F(RowsCallTest, RowsAreTheSegmentsTokensOneBehindTheOther) {
  std::vector<Segment> segments{segment(2, 5), segment(9, 1, 2)};
  segments[1].carry = 1;
  ASSERT_TRUE(checkSegments(segments, limits_, 2).ok());
  RowsCall call = makeRowsCall(segments, limits_);
  EXPECT_EQ(call.rows, 6);
  EXPECT_EQ(call.ids, (std::vector<int32_t>{1, 2, 3, 4, 5, 0}));
  EXPECT_EQ(call.positions, (std::vector<int32_t>{2, 3, 4, 5, 6, 9}));
  // Cut after three tokens: row, count, position, table.
  EXPECT_EQ(call.pieces, 3);
  EXPECT_EQ(call.pieceWords, (std::vector<int32_t>{0, 3, 2, 0, 3, 2, 5, 0, 5, 1, 9, 1}));
  EXPECT_EQ(call.pagesOfSequence, 5);
  EXPECT_EQ(call.tables, (std::vector<int32_t>{5, 0, 0, 0, 0, 3, 1, 2, 0, 0}));
  EXPECT_EQ(call.last, (std::vector<int32_t>{4, 5}));
  EXPECT_EQ(call.carry, (std::vector<int32_t>{-1, 1}));
}

TEST_F(RowsCallTest, WhatDoesNotFitIsRefusedWithItsNumbers) {
  expectRefused({}, "0 segments are given, a call takes 1 to 3");
  expectRefused(std::vector<Segment>(4, segment(0, 1)), "4 segments");
  expectRefused({segment(0, 0)}, "segment 0 has no tokens");
  expectRefused({segment(0, 11)}, "11 tokens are given, a call takes at most 10");
  expectRefused({segment(-1, 1)}, "reaches from token -1");
  expectRefused({segment(18, 3)}, "reaches from token 18 to 21, the plan's context is 20");
  expectRefused({segment(8, 1, 3)}, "has 2 pages of 4 tokens, its 9 tokens need 3");
  pages_[1] = 6;
  expectRefused({segment(4, 1)}, "names page 6, there are 6");
  pages_[1] = 0;
  tokens_[2] = 100;
  expectRefused({segment(0, 3)}, "has token 100, the vocabulary has 100");
}

TEST_F(RowsCallTest, APageThatIsWrittenIsOfOneSegment) {
  expectRefused({segment(0, 1), segment(3, 1)}, "segments 0 and 1 both write into page 5");
  std::vector<int32_t> other{5, 4};
  Segment reader{.tokens = std::span(tokens_).first(2), .past = 4, .pages = other};
  EXPECT_TRUE(checkSegments(std::vector<Segment>{segment(4, 2), reader}, limits_, 0).ok());
  expectRefused({reader, segment(3, 1)},
                "segments 0 and 1, of which one writes into it, have page 5");
  pages_ = {5, 5};
  expectRefused({segment(4, 1)}, "segment 0 has page 5 twice");
}

TEST_F(RowsCallTest, ACarriedTokenNeedsTheCallBefore) {
  Segment carried = segment(3, 1);
  carried.carry = 2;
  tokens_[0] = -7; // not read
  expectRefused({carried}, "carries the choice of segment 2, the call before had 2", 2);
  EXPECT_TRUE(checkSegments(std::span(&carried, 1), limits_, 3).ok());
}

} // namespace
} // namespace gpt2c::rt

// Versions of functions: smallest first, the last one takes all calls.
#include "schedule/Versions.h"

#include "ir/Text.h"

#include <gtest/gtest.h>

namespace gpt2c {
namespace {

const SymbolBounds none;

TEST(Versions, RowsGrowAndTheLastTakesAll) {
  for (int64_t maxBatch : {1, 2, 8, 9, 128})
    for (int64_t context : {16, 64, 1024}) {
      const auto boxes = Versions(maxBatch, context, none).rowsBoxes();
      ASSERT_FALSE(boxes.empty());
      for (size_t i = 1; i < boxes.size(); ++i) {
        EXPECT_TRUE(
            boxes[i].rows > boxes[i - 1].rows ||
            (boxes[i].rows == boxes[i - 1].rows && boxes[i].segments > boxes[i - 1].segments));
        EXPECT_LE(boxes[i].segments, std::min(maxBatch, boxes[i].rows));
      }
      EXPECT_EQ(boxes.back().rows, std::min<int64_t>(1536, maxBatch * context));
      EXPECT_EQ(boxes.back().segments, std::min(maxBatch, boxes.back().rows));
    }
}

TEST(Versions, PromptsHaveVersionsOfTheirOwn) {
  const auto boxes = Versions(128, 1024, none).rowsBoxes();
  const auto has = [&](int64_t rows, int64_t segments) {
    return std::ranges::any_of(boxes,
                               [&](auto &b) { return b.rows == rows && b.segments == segments; });
  };
  EXPECT_TRUE(has(512, 8) && has(512, 128));
  EXPECT_TRUE(has(32, 8) && has(32, 32));
  EXPECT_TRUE(has(8, 8) && has(1, 1));
  for (const auto &box : Versions(8, 1024, none).rowsBoxes())
    EXPECT_LE(box.segments, 8); // where there are no more, none is for more
}

TEST(Versions, LongContextsHaveVersionsForShortPrompts) {
  auto module =
      parseModule("module @m {}\n\nfunc @prefill(%ids: i32[batch, seq]) -> (%y: i32[batch, "
                  "seq]) {\n  return %ids\n}\n",
                  "test.ir");
  ASSERT_TRUE(bool(module)) << llvm::toString(module.takeError());
  const auto boxes = [&](int64_t context) {
    return Versions(1, context, none).boxes(*(*module)->functions.front(), **module);
  };
  using Boxes = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(boxes(1024), (Boxes{{1, 32}, {1, 128}, {1, 512}, {1, 1024}}));
  EXPECT_EQ(boxes(1124), (Boxes{{1, 32}, {1, 128}, {1, 512}, {1, 1024}, {1, 1124}}));
  EXPECT_EQ(boxes(8192),
            (Boxes{{1, 32}, {1, 128}, {1, 512}, {1, 1024}, {1, 2048}, {1, 4096}, {1, 8192}}));
}

} // namespace
} // namespace gpt2c

// Calls cut into groups of rows: together they are the call.
#include "runtime/device/MicroBatches.h"

#include <gtest/gtest.h>

#include <random>

namespace gpt2c::rt {
namespace {

TEST(MicroBatches, AreTheCallInItsOrder) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    std::vector<Tokens> tokens(1 + random() % 7);
    std::vector<Segment> segments(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      for (size_t n = 1 + random() % 20; n > 0; --n)
        tokens[i].push_back(int32_t(random() % 1000));
      segments[i].tokens = tokens[i];
      segments[i].past = int32_t(random() % 50);
      segments[i].carry = random() % 3 ? -1 : int32_t(i);
      segments[i].wantLogits = random() % 2;
    }
    const auto rows = int64_t(1 + random() % 30);
    const std::vector<MicroBatch> groups = microBatches(segments, rows);
    std::vector<size_t> at(segments.size()); // tokens that were there
    size_t segment = 0;
    for (const MicroBatch &group : groups) {
      int64_t sum = 0;
      ASSERT_FALSE(group.segments.empty());
      for (size_t i = 0; i < group.segments.size(); ++i) {
        const Segment &part = group.segments[i];
        const size_t of = group.of[i];
        ASSERT_GE(of, segment) << "parts follow each other";
        segment = of;
        ASSERT_EQ(part.tokens.data(), tokens[of].data() + at[of]);
        ASSERT_EQ(part.past, segments[of].past + int32_t(at[of]));
        at[of] += part.tokens.size();
        ASSERT_EQ(bool(group.ends[i]), at[of] == tokens[of].size());
        ASSERT_EQ(part.wantLogits, segments[of].wantLogits && group.ends[i]);
        ASSERT_TRUE(segments[of].carry < 0 || group.ends[i]) << "what carries is whole";
        sum += int64_t(part.tokens.size());
      }
      ASSERT_TRUE(sum <= rows || (group.of.size() == 1 && group.segments[0].carry >= 0));
    }
    for (size_t i = 0; i < segments.size(); ++i)
      ASSERT_EQ(at[i], tokens[i].size());
  }
}

TEST(MicroBatches, GiveTogetherWhatTheCallGives) {
  const Tokens tokens = {1, 2, 3, 4, 5};
  std::vector<Segment> segments(2);
  for (Segment &s : segments) {
    s.tokens = tokens;
    s.wantLogits = true;
  }
  const std::vector<MicroBatch> groups = microBatches(segments, 4); // 4, 1 + 3, 2
  ASSERT_EQ(groups.size(), 3U);
  RowsOutput out;
  out.next.resize(2);
  addGroup(groups[0], {{90}, {}, {}}, out);
  addGroup(groups[1], {{7, 91}, {0.5}, {}}, out);
  addGroup(groups[2], {{8}, {1.5}, {}}, out);
  EXPECT_EQ(out.next, (Tokens{7, 8}));
  EXPECT_EQ(out.logits, (std::vector<float>{0.5, 1.5}));
}

TEST(MicroBatches, AreSomeForEachStage) {
  EXPECT_EQ(microRows(4096, 2, 64), 512);
  EXPECT_EQ(microRows(4096, 4, 64), 256);
  EXPECT_EQ(microRows(32, 2, 64), 64) << "few rows are one group";
  EXPECT_EQ(microRows(0, 2, 0), 1);
}

} // namespace
} // namespace gpt2c::rt

// Times of a function's steps, in order.
#include "runtime/cuda/StepProfiler.h"

#include <gtest/gtest.h>

#include <random>

namespace gpt2c::rt::cuda {
namespace {

using Times = std::vector<FunctionProfile::StepTime>;

Times ofEnds(const std::vector<double> &ends) {
  Times times;
  for (double begin = 0; double end : ends) {
    times.push_back({times.size(), begin, end});
    begin = end;
  }
  return times;
}
std::vector<double> endsOf(const Times &times) {
  std::vector<double> ends;
  for (const auto &t : times)
    ends.push_back(t.end);
  return ends;
}

TEST(StepProfiler, AStepEndsNoLaterThanThoseBehindIt) {
  Times times = ofEnds({3, 9, 5, 6, 5.5, 8});
  inOrder(times);
  EXPECT_EQ(endsOf(times), (std::vector<double>{3, 5, 5, 5.5, 5.5, 8}));
  EXPECT_EQ(times[2].begin, 5);
  Times before = times;
  inOrder(times);
  EXPECT_EQ(endsOf(times), endsOf(before));
  Times none;
  inOrder(none);
  EXPECT_TRUE(none.empty());
}

/// A time that is earlier than the start is none; what lies between steps that are timed stays.
TEST(StepProfiler, NothingIsBeforeTheStart) {
  Times times = {{0, 0, -0.1}, {4, 2, 3}, {7, 2.5, 6}};
  inOrder(times);
  EXPECT_EQ(endsOf(times), (std::vector<double>{0, 2.5, 6}));
  EXPECT_EQ(times[1].begin, 2);
  EXPECT_EQ(times[2].begin, 2.5);
}

TEST(StepProfiler, TimesAreNotNegativeAndAddUp) {
  std::mt19937 random(1);
  std::normal_distribution<double> noise(0, 3);
  for (int n = 1; n < 50; ++n) {
    std::vector<double> ends;
    for (int i = 0; i < n; ++i)
      ends.push_back(20 + i + noise(random));
    Times times = ofEnds(ends);
    inOrder(times);
    double sum = 0;
    for (const auto &t : times) {
      EXPECT_GE(t.end, t.begin);
      sum += t.end - t.begin;
    }
    EXPECT_NEAR(sum, ends.back(), 1e-9);
  }
}

} // namespace
} // namespace gpt2c::rt::cuda

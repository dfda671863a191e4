// Parts of an op on several threads.
#include "ir/ops/Workers.h"
#include "ir/ops/BlasThreads.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <new>

using namespace gpt2c;

namespace {

/// Four threads while it lives.
class Workers : public ::testing::Test {
protected:
  void SetUp() override { ASSERT_TRUE(setProductThreads(4)); }
  void TearDown() override { setProductThreads(before_); }
  int before_ = productThreads();
};

TEST_F(Workers, EachPartIsDoneOnce) {
  for (int turn = 0; turn < 200; ++turn) {
    std::array<std::atomic<int>, 37> times = {};
    forParts(37, [&](int64_t i) { ++times[i]; });
    for (auto &t : times)
      ASSERT_EQ(t, 1);
  }
}

TEST_F(Workers, PartsOfAPartAreDoneByItsThread) {
  std::atomic<int> done = 0;
  forParts(8, [&](int64_t) { forParts(5, [&](int64_t) { ++done; }); });
  EXPECT_EQ(done, 40);
}

TEST_F(Workers, WhatAPartThrowsIsThrownByTheWhole) {
  for (int turn = 0; turn < 50; ++turn) {
    EXPECT_THROW(forParts(16,
                          [&](int64_t i) {
                            if (i % 5 == 3)
                              throw std::bad_alloc();
                          }),
                 std::bad_alloc);
    std::atomic<int> done = 0;
    forParts(16, [&](int64_t) { ++done; });
    EXPECT_EQ(done, 16);
  }
}

} // namespace

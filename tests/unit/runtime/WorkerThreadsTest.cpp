// Short pieces of work that threads share.
#include "runtime/device/WorkerThreads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

namespace gpt2c::rt {
namespace {

TEST(WorkerThreads, EachPartIsDoneOnceAndSeen) {
  for (int threads : {0, 1, 3, 7}) {
    WorkerThreads workers(threads);
    for (size_t count : {0, 1, 2, 3, 8, 32, 257})
      for (int turn = 0; turn < 20; ++turn) {
        std::vector<int> done(count); // plain: what is seen was done before
        workers.forEach(count, [&](size_t i) { done[i] += int(i) + 1; });
        for (size_t i = 0; i < count; ++i)
          ASSERT_EQ(done[i], int(i) + 1) << threads << " threads, part " << i << " of " << count;
      }
  }
}

/// A part that takes until the others are done does not keep these from being done.
TEST(WorkerThreads, PartsRunSideBySide) {
  WorkerThreads workers(2);
  std::atomic<int> done = 0;
  workers.forEach(8, [&](size_t i) {
    if (i == 0)
      while (done < 7)
        std::this_thread::yield();
    ++done;
  });
  EXPECT_EQ(done, 8);
}

TEST(WorkerThreads, MayEndWithoutWork) {
  {
    const WorkerThreads never(4);
  }
  WorkerThreads once(4);
  std::atomic<size_t> sum = 0;
  once.forEach(100, [&](size_t i) { sum += i; });
  EXPECT_EQ(sum, 4950u);
}

} // namespace
} // namespace gpt2c::rt

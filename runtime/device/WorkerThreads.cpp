#include "runtime/device/WorkerThreads.h"

#include "runtime/device/Pause.h"

#include <algorithm>
#include <cassert>
#include <system_error>

namespace gpt2c::rt {

WorkerThreads::~WorkerThreads() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  begun_.notify_all();
  for (std::thread &t : threads_)
    t.join();
}

bool WorkerThreads::doPart() {
  uint64_t word = taken_.load(std::memory_order_acquire);
  Taken taken;
  do {
    taken = Taken::of(word);
    if (!taken.isOpen())
      return false;
  } while (!taken_.compare_exchange_weak(word, word + 1, std::memory_order_acq_rel,
                                         std::memory_order_acquire));
  (*part_)(taken.next); // the piece does not end before this part has
  if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    const std::lock_guard lock(mutex_); // between the caller's look and its sleep nobody gets in
    ended_.notify_one();
  }
  return true;
}

void WorkerThreads::serve() {
  for (;;) {
    while (doPart()) {
    }
    std::unique_lock lock(mutex_);
    begun_.wait(lock, [&] { return stop_ || Taken::of(taken_.load()).isOpen(); });
    if (stop_)
      return;
  }
}

void WorkerThreads::start() {
  try {
    while (threads_.size() < size_t(wanted_))
      threads_.emplace_back([this] { serve(); });
  } catch (const std::system_error &) {
    wanted_ = int(threads_.size()); // the system has no more: they share the work
  }
}

/// A part takes microseconds, and to be woken up as long again or longer.
void WorkerThreads::awaitOthers() {
  constexpr int looks = 2000; // some 50 us
  for (int look = 0; look < looks; ++look) {
    if (left_.load(std::memory_order_acquire) == 0)
      return;
    pauseThread();
  }
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return left_.load(std::memory_order_acquire) == 0; });
}

void WorkerThreads::forEach(size_t count, const std::function<void(size_t)> &part) {
  assert(count <= mostParts);
  if (count < 2 || wanted_ < 1) {
    for (size_t i = 0; i < count; ++i)
      part(i);
    return;
  }
  start();
  part_ = &part;
  left_.store(count, std::memory_order_relaxed);
  const uint32_t piece = Taken::of(taken_.load(std::memory_order_relaxed)).piece + 1;
  {
    const std::lock_guard lock(mutex_);
    taken_.store(Taken{piece, uint32_t(count), 0}.word(), std::memory_order_release);
  }
  // Not under the lock, which is the first thing that they want.
  if (count > threads_.size())
    begun_.notify_all();
  else
    for (size_t i = 1; i < count; ++i)
      begun_.notify_one();
  while (doPart()) {
  }
  awaitOthers();
}

} // namespace gpt2c::rt

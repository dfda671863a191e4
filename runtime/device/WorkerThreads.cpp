#include "runtime/device/WorkerThreads.h"

#include <algorithm>
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

bool WorkerThreads::take(std::unique_lock<std::mutex> &lock) {
  if (next_ == count_)
    return false;
  const size_t mine = next_++;
  const std::function<void(size_t)> &part = *part_;
  lock.unlock();
  part(mine);
  lock.lock();
  if (--left_ == 0)
    ended_.notify_one();
  return true;
}

void WorkerThreads::serve() {
  std::unique_lock lock(mutex_);
  while (!stop_)
    if (!take(lock))
      begun_.wait(lock, [&] { return stop_ || next_ < count_; });
}

void WorkerThreads::forEach(size_t count, const std::function<void(size_t)> &part) {
  if (count < 2 || wanted_ < 1) {
    for (size_t i = 0; i < count; ++i)
      part(i);
    return;
  }
  try {
    while (threads_.size() < size_t(wanted_))
      threads_.emplace_back([this] { serve(); });
  } catch (const std::system_error &) {
    wanted_ = int(threads_.size()); // the system has no more: they share the work
  }
  std::unique_lock lock(mutex_);
  part_ = &part;
  next_ = 0;
  count_ = left_ = count;
  for (size_t i = 1; i < std::min(count, threads_.size() + 1); ++i)
    begun_.notify_one();
  while (take(lock)) {
  }
  ended_.wait(lock, [&] { return left_ == 0; });
  next_ = count_ = 0;
}

} // namespace gpt2c::rt

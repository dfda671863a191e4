#include "server/WorkQueue.h"

#include <utility>

namespace gpt2c::serve {

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable())
    thread_.join();
}

bool WorkQueue::add(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (waiting_.size() >= most_)
    return false;
  waiting_.push_back(std::move(work));
  if (!thread_.joinable())
    thread_ = std::thread([this] { run(); });
  changed_.notify_one();
  return true;
}

void WorkQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
    if (ending_)
      return;
    const std::function<void()> work = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
}

} // namespace gpt2c::serve

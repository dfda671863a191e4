// Work that takes milliseconds, on a thread of its own: a connection's thread has others to serve.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace gpt2c::serve {

class WorkQueue {
public:
  /// At most `most` pieces of work wait.
  explicit WorkQueue(size_t most) : most_(most) {}
  /// Waits for the work that runs; what waits is dropped.
  ~WorkQueue();
  WorkQueue(const WorkQueue &) = delete;
  WorkQueue &operator=(const WorkQueue &) = delete;

  /// Runs `work` soon, pieces in their order; false where too many wait. It does not throw.
  bool add(std::function<void()> work);

private:
  void run();

  const size_t most_;
  std::mutex mutex_; ///< of what follows
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool ending_ = false;
  std::thread thread_; ///< begun with the first work
};

} // namespace gpt2c::serve

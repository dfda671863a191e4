// Threads that share the parts of a short piece of work, and sleep between two pieces.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace gpt2c::rt {

/// One caller at a time. Threads are started by the first work of two parts or more.
class WorkerThreads {
public:
  /// `threads`: how many work beside the caller's, or fewer where the system gives no more; 0:
  /// none.
  explicit WorkerThreads(int threads) : wanted_(threads) {}
  ~WorkerThreads();
  WorkerThreads(const WorkerThreads &) = delete;
  WorkerThreads &operator=(const WorkerThreads &) = delete;

  /// Calls `part`, which does not throw, with each of 0 .. count - 1 once, in any thread and order;
  /// what was done is seen by the caller. Nobody waits for threads that wake too late to help.
  void forEach(size_t count, const std::function<void(size_t)> &part);

private:
  void serve();
  /// The next part of the work that is open; false where none is left. `lock` is held.
  bool take(std::unique_lock<std::mutex> &lock);

  int wanted_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable begun_, ended_;
  const std::function<void(size_t)> *part_ = nullptr;
  size_t next_ = 0, count_ = 0; ///< of the work that is open: parts that are taken, and all
  size_t left_ = 0;             ///< parts that are not done
  bool stop_ = false;
};

} // namespace gpt2c::rt

// Threads that share the parts of a short piece of work, and sleep between two pieces.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace gpt2c::rt {

/// One caller at a time. Threads are started by the first work of two parts or more.
class WorkerThreads {
public:
  /// The most parts of a piece of work.
  static constexpr uint32_t mostParts = (1 << 20) - 1;

  /// `threads`: how many work beside the caller's, or fewer where the system gives no more; 0:
  /// none.
  explicit WorkerThreads(int threads) : wanted_(threads) {}
  ~WorkerThreads();
  WorkerThreads(const WorkerThreads &) = delete;
  WorkerThreads &operator=(const WorkerThreads &) = delete;

  /// Calls `part`, which does not throw, with each of 0 .. count - 1 once, in any thread and order;
  /// what was done is seen by the caller. Nobody waits for threads that wake too late to help, and
  /// a part that another thread is about to end is waited for awake.
  void forEach(size_t count, const std::function<void(size_t)> &part);

private:
  /// Which parts are taken, in one word, so that a thread that is late takes none of the next
  /// piece's as one of its own: the number of the piece, how many parts it has and how many of
  /// these are taken.
  struct Taken {
    uint32_t piece = 0, count = 0, next = 0;
    uint64_t word() const { return uint64_t(piece) << 40 | uint64_t(count) << 20 | next; }
    static Taken of(uint64_t word) {
      return {uint32_t(word >> 40), uint32_t(word >> 20) & mostParts, uint32_t(word) & mostParts};
    }
    bool isOpen() const { return next < count; }
  };

  void start();
  void serve();
  /// Does the next part of the work that is open; false where none is left.
  bool doPart();
  void awaitOthers();

  int wanted_;
  std::vector<std::thread> threads_;
  std::atomic<uint64_t> taken_ = 0;                   ///< Taken
  std::atomic<size_t> left_ = 0;                      ///< parts that are not done
  const std::function<void(size_t)> *part_ = nullptr; ///< of the piece that is open
  std::mutex mutex_;                                  ///< of those who sleep
  std::condition_variable begun_, ended_;
  bool stop_ = false;
};

} // namespace gpt2c::rt

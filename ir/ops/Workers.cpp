#include "ir/ops/Workers.h"

#include "ir/ops/BlasThreads.h"
#include "ir/ops/RowProduct.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

namespace gpt2c {
namespace {

void pause() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

/// Waits for some microseconds, the time between two ops, before it gives the core away.
template <typename F> bool soon(F happened) {
  constexpr int tries = 2000;
  for (int i = 0; i < tries; ++i) {
    if (happened())
      return true;
    pause();
  }
  return false;
}

template <typename F> void waitUntil(F happened) {
  while (!soon(happened))
    std::this_thread::yield();
}

/// One job at a time. `round_` is odd while there is one, and `inside_` counts those at it: a job
/// is replaced when nobody is.
class Workers {
public:
  ~Workers() {
    end_ = true;
    nextRound();
    const bool ours = owner_ == getpid(); // a fork has the objects and not the threads
    for (std::thread &t : threads_)
      if (ours)
        t.join();
      else
        t.detach();
  }

  void run(int64_t parts, llvm::function_ref<void(int64_t)> f) {
    std::unique_lock lock(busy_, std::defer_lock);
    if (isPart || !lock.try_lock()) {
      for (int64_t i = 0; i < parts; ++i)
        f(i);
      return;
    }
    grow(std::min<int64_t>(parts, productThreads()) - 1);
    f_ = &f, parts_ = parts, invariant_ = RowInvariance::active();
    wanted_ = productThreads() - 1;
    next_ = 0, done_ = 0;
    nextRound();
    takeParts();
    waitUntil([&] { return done_ == parts; });
    ++round_;
    waitUntil([&] { return inside_ == 0; });
    if (error_)
      std::rethrow_exception(std::exchange(error_, nullptr));
  }

private:
  void nextRound() {
    ++round_;
    round_.notify_all();
  }

  void grow(int64_t threads) {
    if (owner_ != getpid()) {
      for (std::thread &t : threads_)
        t.detach();
      threads_.clear();
      inside_ = 0;
      owner_ = getpid();
    }
    while (int64_t(threads_.size()) < threads)
      try {
        threads_.emplace_back([this, number = int(threads_.size())] { work(number); });
      } catch (const std::system_error &) { // no more threads
        return;
      }
  }

  void takeParts() {
    isPart = true;
    for (int64_t i; (i = next_++) < parts_; ++done_)
      try {
        (*f_)(i);
      } catch (...) { // memory that ran out
        const std::lock_guard lock(failing_);
        error_ = std::current_exception();
      }
    isPart = false;
  }

  void work(int number) {
    for (uint32_t seen = round_; !end_;) {
      ++inside_;
      if (const uint32_t now = round_; now % 2 == 1 && number < wanted_) {
        const RowInvariance invariance(invariant_);
        takeParts();
      }
      --inside_;
      if (!soon([&] { return round_ != seen; }))
        round_.wait(seen);
      seen = round_;
    }
  }

  static thread_local bool isPart;

  std::mutex busy_;
  std::vector<std::thread> threads_;
  pid_t owner_ = getpid();
  std::atomic<uint32_t> round_ = 0;
  std::atomic<int> inside_ = 0;
  std::atomic<bool> end_ = false;
  llvm::function_ref<void(int64_t)> *f_ = nullptr;
  int64_t parts_ = 0;
  int wanted_ = 0;
  bool invariant_ = false;
  std::atomic<int64_t> next_ = 0, done_ = 0;
  std::mutex failing_;
  std::exception_ptr error_; ///< of a part, the last one
};

thread_local bool Workers::isPart = false;

} // namespace

void forParts(int64_t parts, llvm::function_ref<void(int64_t)> f) {
  static Workers workers;
  if (parts > 1 && productThreads() > 1)
    return workers.run(parts, f);
  for (int64_t i = 0; i < parts; ++i)
    f(i);
}

int64_t partsOf(double work, int64_t most) {
  constexpr double worthPart = 4e5; // some ten microseconds
  return std::clamp<int64_t>(static_cast<int64_t>(work / worthPart), 1, std::max<int64_t>(most, 1));
}

} // namespace gpt2c

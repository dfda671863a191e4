// The way of updates from an engine's thread to the connections that wait for them. A step has one
// for each of its sequences: the engine's thread puts them down together and goes on, and a thread
// of the server deals them out.
#pragma once

#include "runtime/engine/Engine.h"

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace gpt2c::serve {

using Clock = std::chrono::steady_clock;

/// What came for one exchange, until its connection takes it.
class Mailbox {
public:
  struct Item {
    size_t choice;
    rt::Update update;
    Clock::time_point at;
  };

  /// `wake` is called once until the next take(): when an ending is there, or so many items,
  /// `first` the first time and `interval` later.
  Mailbox(std::function<void()> wake, size_t first, size_t interval)
      : wake_(std::move(wake)), enough_(first), interval_(interval) {}
  void put(Item item);
  std::vector<Item> take();
  /// Nothing is kept from now on and `wake` not called any more.
  void close();

private:
  std::mutex mutex_; ///< of what follows; held while wake_ is called
  std::function<void()> wake_;
  std::vector<Item> items_;
  size_t enough_;
  const size_t interval_;
  bool woken_ = false;
};

/// Thread-safe; the items of a mailbox arrive in the order of put().
class Delivery : public std::enable_shared_from_this<Delivery> {
public:
  /// Runs what it is given soon, on a thread of the server.
  using Run = std::function<void(std::function<void()>)>;

  /// Who deals out from now on; null: whoever flushes. Not while something is being dealt out.
  void dealtOutBy(Run run);
  void put(const std::shared_ptr<Mailbox> &to, size_t choice, rt::Update &&update);
  /// Behind what came together. Costs the caller one wake-up at most.
  void flush();

private:
  struct Letter {
    std::shared_ptr<Mailbox> to;
    Mailbox::Item item;
  };
  void dealOut();

  std::mutex mutex_; ///< of what follows; held while run_ is called
  Run run_;
  std::vector<Letter> letters_;
  Clock::time_point at_; ///< of the items that come together
  bool together_ = false;
  bool dealing_ = false;
  std::vector<Letter> dealt_; ///< of who deals out
};

} // namespace gpt2c::serve

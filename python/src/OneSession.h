// A session that several threads may ask: one call at a time, in the order in which they came.
#pragma once

#include "python/src/Bindings.h"
#include "runtime/engine/EngineThread.h"
#include "runtime/session/Session.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

namespace gpt2c::python {

/// How long anything waits before it looks whether a signal has come.
constexpr std::chrono::milliseconds signalInterval{20};

/// Turns of those who want one thing, first come, first served.
class Queue {
public:
  using Ticket = uint64_t;

  Ticket join() {
    std::lock_guard lock(mutex_);
    waiting_.push_back(++last_);
    return last_;
  }
  /// Whether it is this ticket's turn, after at most `time`.
  template <typename Time> bool waitFor(Ticket ticket, Time time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return waiting_.front() == ticket; });
  }
  /// Ends the turn, or the wait for it.
  void leave(Ticket ticket) {
    {
      std::lock_guard lock(mutex_);
      std::erase(waiting_, ticket);
    }
    changed_.notify_all();
  }
  bool othersWait() {
    std::lock_guard lock(mutex_);
    return waiting_.size() > 1;
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Ticket> waiting_; ///< the first one has its turn
  Ticket last_ = 0;
};

/// A place in a queue.
class Turn {
public:
  explicit Turn(Queue &queue) : queue_(queue), ticket_(queue.join()) {}
  ~Turn() { queue_.leave(ticket_); }
  Turn(const Turn &) = delete;
  Turn &operator=(const Turn &) = delete;

  /// After at most signalInterval.
  bool hasCome() { return queue_.waitFor(ticket_, signalInterval); }

private:
  Queue &queue_;
  Queue::Ticket ticket_;
};

struct OneSession {
  OneSession(OpenPlan opened, std::unique_ptr<rt::Backend> backend, std::string why)
      : plan(std::move(opened)), session(plan.plan, std::move(backend)), fallback(std::move(why)) {}

  OpenPlan plan;
  rt::Session session;
  /// Of the engine that is made with the first generation. A call may have any number of prompts.
  rt::EngineOptions engineOptions{.maxWaiting = INT64_MAX};
  std::string fallback; ///< why "auto" took the CPU; empty where it did not
  Queue queue;
  /// Of whoever has its turn: the session was used since the engine's last turn.
  bool usedBesideEngine = false;
  std::optional<Turn> engineTurn;        ///< of the engine's thread
  std::atomic<bool> knowsEngine = false; ///< what follows does not change any more
  std::unique_ptr<rt::EngineThread> engine;
};

using SessionPtr = std::shared_ptr<OneSession>;

/// Runs f(session) without the GIL while no other call runs, and returns its Result's value. A
/// signal that comes while it waits for its turn ends the wait.
template <typename F> auto locked(OneSession &s, F f) {
  Turn turn(s.queue);
  for (;;) {
    {
      nb::gil_scoped_release released;
      if (turn.hasCome()) {
        s.usedBesideEngine = true;
        return take(f(s.session));
      }
    }
    if (PyErr_CheckSignals() != 0)
      throw nb::python_error();
  }
}

/// The session's engine, made in the first call; null where the plan or the device has none.
rt::EngineThread *engineOf(OneSession &s);

} // namespace gpt2c::python

// An engine on a thread of its own, for any number of threads that ask.
#pragma once

#include "runtime/engine/Engine.h"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace gpt2c::rt {

/// Where the device has other users: what surrounds a time in which the engine has requests. Called
/// on the engine's thread.
struct EngineTurns {
  std::function<void(Engine &)> begin = {}; ///< waits for the turn
  std::function<void()> end = {};
  /// Whether others wait: then a request that comes now begins in the next turn.
  std::function<bool()> othersWait = {};
};

class EngineThread {
public:
  /// Gets every update of its request, in order; the last one has the ending. Called on the
  /// engine's thread, or by cancel() for a request that was not begun. It may call submit() and
  /// cancel(), takes no time, since all requests wait for it, and does not throw.
  using OnUpdate = std::function<void(Update &&)>;
  /// Called on the same thread behind the updates that come together, those of a step: once for all
  /// requests that were submitted with it.
  using OnStep = std::shared_ptr<const std::function<void()>>;

  /// `engine` has no callback, and is used by this thread alone from now on.
  explicit EngineThread(std::unique_ptr<Engine> engine, EngineTurns turns = {});
  /// Cancels all requests and waits for their endings.
  ~EngineThread();
  EngineThread(const EngineThread &) = delete;
  EngineThread &operator=(const EngineThread &) = delete;

  /// Whether submit() would take such a request now; Ok, or why not.
  Status check(const Request &request) const;
  /// Takes the request or refuses it at once, without waiting for the device. Its updates may come
  /// before this returns.
  Submitted submit(Request request, OnUpdate onUpdate, OnStep onStep = nullptr);
  /// A request is about to come: where the thread sleeps it wakes up meanwhile, and looks out for
  /// it for a moment.
  void expect();
  /// Ends a request, which has its ending soon; nothing where it has ended.
  void cancel(RequestId id);

  /// As of the last step.
  EngineStats stats() const;
  const EngineLimits &limits() const { return engine_->limits(); }

private:
  struct Asked {
    RequestId id; ///< the caller's
    OnUpdate onUpdate;
    OnStep onStep;
  };
  struct Order {
    Request request;
    Asked asked;
  };

  void run();
  void lookOut() const;
  void turn();
  bool takeOrders(bool begins);
  static void tellNeverBegun(const Asked &asked, size_t promptTokens, Finish finish,
                             Status status = {});
  void deliver();

  const std::unique_ptr<Engine> engine_;
  const EngineTurns turns_;
  /// Of the thread alone: by the engine's number, and the engine's by the caller's.
  std::map<RequestId, Asked> asked_;
  std::map<RequestId, RequestId> numbers_;
  std::vector<OnStep> told_; ///< whose requests have had updates

  mutable std::mutex mutex_; ///< of what follows
  std::condition_variable changed_;
  std::deque<Order> orders_;
  std::vector<RequestId> cancels_;
  RequestId lastId_ = 0;
  EngineStats stats_;
  bool ending_ = false;
  bool sleeps_ = false, expects_ = false; ///< expects_: it is to wake up
  std::atomic<bool> hasOrders_ = false;   ///< as lookOut() looks
  std::thread thread_;
};

} // namespace gpt2c::rt

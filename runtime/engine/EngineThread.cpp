#include "runtime/engine/EngineThread.h"

#include "runtime/device/Pause.h"

#include <algorithm>
#include <utility>

namespace gpt2c::rt {

EngineThread::EngineThread(std::unique_ptr<Engine> engine, EngineTurns turns)
    : engine_(std::move(engine)), turns_(std::move(turns)), stats_(engine_->stats()) {
  thread_ = std::thread([this] { run(); });
}

EngineThread::~EngineThread() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Status EngineThread::check(const Request &request) const {
  std::lock_guard lock(mutex_);
  return rt::check(request, limits(), int64_t(orders_.size()) + stats_.waiting).status;
}

Submitted EngineThread::submit(Request request, OnUpdate onUpdate, OnStep onStep) {
  RequestId id = 0;
  {
    std::lock_guard lock(mutex_);
    Verdict verdict = rt::check(request, limits(), int64_t(orders_.size()) + stats_.waiting);
    if (verdict.refusal != Refusal::None)
      return {0, verdict.refusal, std::move(verdict.status)};
    id = ++lastId_;
    orders_.push_back({std::move(request), {id, std::move(onUpdate), std::move(onStep)}});
    hasOrders_ = true;
  }
  changed_.notify_all();
  return {id, Refusal::None, {}};
}

/// The ending of a request that the engine never had.
void EngineThread::tellNeverBegun(const Asked &asked, size_t promptTokens, Finish finish,
                                  Status status) {
  asked.onUpdate({.id = asked.id,
                  .ending = Ending{.reason = finish,
                                   .status = std::move(status),
                                   .promptTokens = int32_t(promptTokens)}});
  if (asked.onStep)
    (*asked.onStep)();
}

void EngineThread::cancel(RequestId id) {
  Order order{};
  {
    std::lock_guard lock(mutex_);
    auto it = std::ranges::find(orders_, id, [](const Order &o) { return o.asked.id; });
    if (it == orders_.end()) {
      cancels_.push_back(id);
      return;
    }
    order = std::move(*it);
    orders_.erase(it);
  }
  tellNeverBegun(order.asked, order.request.prompt.size(), Finish::Caller);
}

EngineStats EngineThread::stats() const {
  std::lock_guard lock(mutex_);
  EngineStats now = stats_;
  now.waiting += int32_t(orders_.size());
  return now;
}

void EngineThread::expect() {
  {
    const std::lock_guard lock(mutex_);
    if (!sleeps_ || expects_)
      return;
    expects_ = true;
  }
  changed_.notify_all();
}

void EngineThread::lookOut() const {
  constexpr int looks = 64; // between two looks at the clock
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(200);
  for (int i = 1; !hasOrders_ && (i % looks != 0 || std::chrono::steady_clock::now() < end); ++i)
    pauseThread();
}

void EngineThread::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    sleeps_ = true;
    changed_.wait(lock, [this] { return ending_ || expects_ || !orders_.empty(); });
    sleeps_ = false;
    const bool comes = std::exchange(expects_, false) && orders_.empty() && !ending_;
    if (orders_.empty() && !comes)
      return;
    hasOrders_ = false;
    lock.unlock();
    if (comes)
      lookOut();
    else
      turn();
    lock.lock();
  }
}

void EngineThread::turn() {
  if (turns_.begin)
    turns_.begin(*engine_);
  for (bool more = takeOrders(true); more || !engine_->idle(); more = takeOrders(false)) {
    (void)engine_->step(); // the updates of the requests that failed with it say so
    deliver();
  }
  if (turns_.end)
    turns_.end();
}

/// Gives the engine what has come, and says whether that was anything. `begins`: the turn does.
bool EngineThread::takeOrders(bool begins) {
  const bool leaves = !begins && turns_.othersWait && turns_.othersWait();
  std::deque<Order> orders;
  std::vector<RequestId> cancels;
  bool ending = false;
  {
    std::lock_guard lock(mutex_);
    ending = ending_;
    cancels.swap(cancels_);
    if (!leaves || ending)
      orders.swap(orders_);
    stats_.waiting += int32_t(orders.size());
  }
  for (Order &order : orders) {
    const size_t promptTokens = order.request.prompt.size();
    if (ending) {
      tellNeverBegun(order.asked, promptTokens, Finish::Caller);
      continue;
    }
    Submitted submitted = engine_->submit(std::move(order.request));
    if (!submitted) {
      tellNeverBegun(order.asked, promptTokens, Finish::Failed, std::move(submitted.status));
      continue;
    }
    numbers_[order.asked.id] = submitted.id;
    asked_[submitted.id] = std::move(order.asked);
  }
  if (ending)
    for (auto [id, number] : numbers_)
      engine_->cancel(number);
  for (RequestId id : cancels)
    if (auto it = numbers_.find(id); it != numbers_.end())
      engine_->cancel(it->second);
  deliver();
  return !orders.empty();
}

void EngineThread::deliver() {
  {
    std::lock_guard lock(mutex_); // whoever has an update finds it counted
    stats_ = engine_->stats();
  }
  while (std::optional<Update> update = engine_->poll()) {
    auto it = asked_.find(update->id);
    const RequestId id = it->second.id;
    const bool ends = update->ending.has_value();
    update->id = id;
    if (it->second.onStep && std::ranges::count(told_, it->second.onStep) == 0)
      told_.push_back(it->second.onStep);
    it->second.onUpdate(std::move(*update));
    if (!ends)
      continue;
    numbers_.erase(id);
    asked_.erase(it);
  }
  for (const OnStep &onStep : told_)
    (*onStep)();
  told_.clear();
}

} // namespace gpt2c::rt

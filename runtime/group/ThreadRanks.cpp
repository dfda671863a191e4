#include "runtime/group/ThreadRanks.h"

#include "runtime/group/GroupBackend.h"
#include "runtime/group/ThreadLinks.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace gpt2c::rt {

namespace {

class ThreadRanks : public OtherRanks {
public:
  ThreadRanks(std::unique_ptr<ThreadLinks> links, std::vector<std::unique_ptr<Backend>> backends)
      : links_(std::move(links)), backends_(std::move(backends)), replies_(backends_.size()) {
    for (size_t i = 0; i < backends_.size(); ++i)
      threads_.emplace_back([this, i] { work(i); });
  }

  ~ThreadRanks() override {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    for (std::thread &t : threads_)
      t.join();
  }

  int count() const override { return int(backends_.size()); }

  Status begin(std::span<const RankCall> calls) override {
    links_->begin();
    const std::lock_guard lock(mutex_);
    calls_ = calls;
    running_ = backends_.size();
    ++round_;
    changed_.notify_all();
    return {};
  }

  Result<std::vector<RankReply>> finish(const Status &own) override {
    if (!own.ok())
      links_->fail(0, own);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return running_ == 0; });
    int rank = -1;
    const Status why = links_->failure(rank);
    if (rank >= 0 && (rank == 0 || own.message() == why.message()))
      return own;
    if (rank > 0)
      return {why.code(), "rank " + std::to_string(rank) + ": " + why.message()};
    std::vector<RankReply> replies;
    for (auto &reply : replies_)
      replies.push_back((*reply).take());
    return replies;
  }

private:
  void work(size_t i) {
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ends_ || round_ != seen; });
      if (ends_)
        return;
      seen = round_;
      const RankCall &call = calls_[calls_.size() == 1 ? 0 : i];
      lock.unlock();
      Result<RankReply> reply = perform(*backends_[i], call);
      if (!reply)
        links_->fail(int(i) + 1, reply.status());
      lock.lock();
      replies_[i].emplace(std::move(reply));
      if (--running_ == 0)
        changed_.notify_all();
    }
  }

  std::unique_ptr<ThreadLinks> links_;
  std::vector<std::unique_ptr<Backend>> backends_; ///< of ranks 1, 2, ..
  std::mutex mutex_;
  std::condition_variable changed_;
  std::span<const RankCall> calls_; ///< those of begin(), until finish()
  std::vector<std::optional<Result<RankReply>>> replies_;
  size_t running_ = 0;
  uint64_t round_ = 0;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

} // namespace

Result<std::unique_ptr<Backend>> openThreadRanks(const Plan::Ptr &plan, const Division &division,
                                                 const OpenRank &open) {
  if (Status s = checkDivision(plan->meta(), division); !s.ok())
    return s;
  auto links = std::make_unique<ThreadLinks>(division);
  std::vector<std::unique_ptr<Backend>> backends;
  for (int r = 0; r < division.ranks; ++r) {
    Result<std::unique_ptr<Backend>> backend = open(links->link(r));
    if (!backend)
      return {backend.status().code(),
              "rank " + std::to_string(r) + ": " + backend.status().message()};
    backends.push_back(backend.take());
  }
  std::unique_ptr<Backend> first = std::move(backends.front());
  backends.erase(backends.begin());
  return makeGroupBackend(plan, std::move(first),
                          std::make_unique<ThreadRanks>(std::move(links), std::move(backends)),
                          division);
}

} // namespace gpt2c::rt

#include "runtime/group/ThreadLinks.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

namespace gpt2c::rt {

class ThreadLinks::Link : public RankLink {
public:
  Link(ThreadLinks &all, int rank) : all_(all), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return all_.size(); }
  int stages() const override { return all_.stages(); }
  Status gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    return all_.gather(rank_, mine, all);
  }
  Status meet() override { return all_.meetSoon(rank_); }

private:
  ThreadLinks &all_;
  int rank_;
};

ThreadLinks::ThreadLinks(int ranks, int stages) : given_(size_t(ranks)), stages_(stages) {
  for (int r = 0; r < ranks; ++r)
    links_.push_back(std::make_unique<Link>(*this, r));
}

ThreadLinks::~ThreadLinks() = default;

RankLink &ThreadLinks::link(int rank) { return *links_[size_t(rank)]; }

void ThreadLinks::fail(int rank, const Status &why) {
  const std::lock_guard lock(mutex_);
  if (failed_ < 0) {
    failed_ = rank;
    why_ = why;
  }
  met_.notify_all();
}

Status ThreadLinks::failure(int &rank) const {
  const std::lock_guard lock(mutex_);
  rank = failed_;
  return failed_ < 0 ? Status() : why_;
}

void ThreadLinks::begin() {
  const std::lock_guard lock(mutex_);
  failed_ = -1;
  why_ = Status();
  here_ = 0;
}

Status ThreadLinks::meet(std::unique_lock<std::mutex> &lock, int rank) {
  const unsigned round = round_;
  if (++here_ == size()) {
    here_ = 0;
    ++round_;
    met_.notify_all();
  } else {
    met_.wait(lock, [&] { return round_ != round || failed_ >= 0; });
  }
  return outcomeOf(round, rank);
}

Status ThreadLinks::outcomeOf(unsigned round, int rank) const {
  if (round_ != round || failed_ < 0)
    return {};
  return {why_.code(), "rank " + std::to_string(failed_) + " failed while rank " +
                           std::to_string(rank) + " waited for it: " + why_.message()};
}

Status ThreadLinks::meetSoon(int rank) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::microseconds looking(200);
  std::unique_lock lock(mutex_);
  if (here_ + 1 == size())
    return meet(lock, rank);
  ++here_;
  const unsigned round = round_;
  lock.unlock();
  for (const Clock::time_point begin = Clock::now(); Clock::now() - begin < looking;) {
    if (round_ != round)
      return {};
    std::this_thread::yield();
  }
  lock.lock();
  met_.wait(lock, [&] { return round_ != round || failed_ >= 0; });
  return outcomeOf(round, rank);
}

Status ThreadLinks::gather(int rank, std::span<const std::byte> mine, std::span<std::byte> all) {
  std::unique_lock lock(mutex_);
  given_[size_t(rank)] = mine;
  if (Status s = meet(lock, rank); !s.ok())
    return s;
  lock.unlock(); // nobody changes what was given before all have met again
  for (const std::span<const std::byte> from : given_)
    if (from.size() != mine.size()) // which all see, so that none reads what another gave
      return {Code::Corrupt, "ranks gave " + std::to_string(from.size()) + " and " +
                                 std::to_string(mine.size()) + " bytes"};
  std::byte *to = all.data();
  for (const std::span<const std::byte> from : given_)
    to = std::copy(from.begin(), from.end(), to);
  lock.lock();
  return meet(lock, rank);
}

} // namespace gpt2c::rt

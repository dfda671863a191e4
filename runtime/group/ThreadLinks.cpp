#include "runtime/group/ThreadLinks.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

namespace gpt2c::rt {

Status takeSent(int from, std::span<const std::byte> got, std::span<std::byte> bytes) {
  if (got.size() != bytes.size())
    return {Code::Corrupt, "rank " + std::to_string(from) + " gives " + std::to_string(got.size()) +
                               " bytes, not " + std::to_string(bytes.size())};
  std::ranges::copy(got, bytes.begin());
  return {};
}

class ThreadLinks::Link : public RankLink {
public:
  Link(ThreadLinks &all, int rank) : all_(all), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return all_.division_.ranks; }
  int stages() const override { return all_.division_.stages; }
  int microRows() const override { return all_.division_.microRows; }
  Status gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    return all_.gather(*this, mine, all);
  }
  Status meet() override { return all_.meetSoon(*this); }

  Status send(int to, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(all_.mutex_);
    if (all_.failed_ >= 0)
      return all_.failedFor(rank_);
    all_.sent(rank_, to).emplace_back(bytes.begin(), bytes.end());
    all_.met_.notify_all();
    return {};
  }

  Status receive(int from, std::span<std::byte> bytes) override {
    Lock lock(all_.mutex_);
    auto &sent = all_.sent(from, rank_);
    all_.met_.wait(lock, [&] { return !sent.empty() || all_.failed_ >= 0; });
    if (sent.empty())
      return all_.failedFor(rank_);
    const std::vector<std::byte> got = std::move(sent.front());
    sent.pop_front();
    lock.unlock();
    return takeSent(from, got, bytes);
  }

private:
  ThreadLinks &all_;
  int rank_;
};

ThreadLinks::ThreadLinks(const Division &division)
    : division_(division), teams_(size_t(division.stages)),
      sent_(size_t(division.ranks) * size_t(division.ranks)) {
  for (Team &team : teams_)
    team.given.resize(size_t(division.teamSize()));
  for (int r = 0; r < division.ranks; ++r)
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
  for (Team &team : teams_)
    team.here = 0;
  for (auto &sent : sent_)
    sent.clear();
}

Status ThreadLinks::failedFor(int rank) const {
  return {why_.code(), "rank " + std::to_string(failed_) + " failed while rank " +
                           std::to_string(rank) + " waited for it: " + why_.message()};
}

Status ThreadLinks::meet(Lock &lock, Team &team, int rank) {
  if (failed_ >= 0)
    return failedFor(rank);
  const unsigned round = team.round;
  if (++team.here == division_.teamSize()) {
    team.here = 0;
    ++team.round;
    met_.notify_all();
  } else {
    met_.wait(lock, [&] { return team.round != round || failed_ >= 0; });
  }
  return outcomeOf(team, round, rank);
}

Status ThreadLinks::outcomeOf(const Team &team, unsigned round, int rank) const {
  return team.round != round || failed_ < 0 ? Status() : failedFor(rank);
}

Status ThreadLinks::meetSoon(const RankLink &of) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::microseconds looking(200);
  Lock lock(mutex_);
  Team &team = teams_[size_t(of.stage())];
  if (failed_ >= 0 || team.here + 1 == division_.teamSize())
    return meet(lock, team, of.rank());
  ++team.here;
  const unsigned round = team.round;
  lock.unlock();
  for (const Clock::time_point begin = Clock::now(); Clock::now() - begin < looking;) {
    if (team.round != round)
      return {};
    std::this_thread::yield();
  }
  lock.lock();
  met_.wait(lock, [&] { return team.round != round || failed_ >= 0; });
  return outcomeOf(team, round, of.rank());
}

Status ThreadLinks::gather(const RankLink &of, std::span<const std::byte> mine,
                           std::span<std::byte> all) {
  Lock lock(mutex_);
  Team &team = teams_[size_t(of.stage())];
  team.given[size_t(of.placeInTeam())] = mine;
  if (Status s = meet(lock, team, of.rank()); !s.ok())
    return s;
  lock.unlock(); // nobody changes what was given before all have met again
  for (const std::span<const std::byte> from : team.given)
    if (from.size() != mine.size()) // which all see, so that none reads what another gave
      return {Code::Corrupt, "ranks gave " + std::to_string(from.size()) + " and " +
                                 std::to_string(mine.size()) + " bytes"};
  std::byte *to = all.data();
  for (const std::span<const std::byte> from : team.given)
    to = std::copy(from.begin(), from.end(), to);
  lock.lock();
  return meet(lock, team, of.rank());
}

} // namespace gpt2c::rt

// Ranks that are threads of one process.
#pragma once

#include "runtime/group/RankLink.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

namespace gpt2c::rt {

class ThreadLinks {
public:
  explicit ThreadLinks(const Division &division);
  ~ThreadLinks();
  const Division &division() const { return division_; }
  RankLink &link(int rank);

  /// Rank `rank` runs no further: what others wait for ends with an error that says why. The first
  /// failure counts.
  void fail(int rank, const Status &why);
  /// The first failure since begin(); Ok: none. `rank` gets whose it is.
  Status failure(int &rank) const;
  /// No rank is in a call; a failure of the calls before is forgotten, and what nobody received.
  void begin();

private:
  class Link;
  /// Where the ranks of a team meet.
  struct Team {
    std::vector<std::span<const std::byte>> given; ///< by the ranks that are here
    int here = 0;
    std::atomic<unsigned> round = 0; ///< written under the mutex
  };
  using Lock = std::unique_lock<std::mutex>;
  Status gather(const RankLink &of, std::span<const std::byte> mine, std::span<std::byte> all);
  /// Waits until all ranks of the team are here, or one failed.
  Status meet(Lock &lock, Team &team, int rank);
  /// The same where the others are about to come: looks for some time before it sleeps.
  Status meetSoon(const RankLink &of);
  Status outcomeOf(const Team &team, unsigned round, int rank) const;
  Status failedFor(int rank) const;
  std::deque<std::vector<std::byte>> &sent(int from, int to) {
    return sent_[size_t(from) * size_t(division_.ranks) + size_t(to)];
  }

  mutable std::mutex mutex_;
  std::condition_variable met_;
  Division division_;
  std::vector<Team> teams_;
  std::vector<std::deque<std::vector<std::byte>>> sent_; ///< [from, to]: not yet received
  int failed_ = -1;
  Status why_;
  std::vector<std::unique_ptr<Link>> links_;
};

} // namespace gpt2c::rt

// Ranks that are threads of one process.
#pragma once

#include "runtime/group/RankLink.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

namespace gpt2c::rt {

class ThreadLinks {
public:
  explicit ThreadLinks(int ranks, int stages = 1);
  ~ThreadLinks();
  int size() const { return int(given_.size()); }
  int stages() const { return stages_; }
  RankLink &link(int rank);

  /// Rank `rank` runs no further: what others wait for ends with an error that says why. The first
  /// failure counts.
  void fail(int rank, const Status &why);
  /// The first failure since begin(); Ok: none. `rank` gets whose it is.
  Status failure(int &rank) const;
  /// No rank is in a call; a failure of the calls before is forgotten.
  void begin();

private:
  class Link;
  Status gather(int rank, std::span<const std::byte> mine, std::span<std::byte> all);
  /// Waits until all ranks are here, or one failed.
  Status meet(std::unique_lock<std::mutex> &lock, int rank);
  /// The same where the others are about to come: looks for some time before it sleeps.
  Status meetSoon(int rank);
  Status outcomeOf(unsigned round, int rank) const;

  mutable std::mutex mutex_;
  std::condition_variable met_;
  std::vector<std::span<const std::byte>> given_; ///< by the ranks that are here
  int here_ = 0;
  std::atomic<unsigned> round_ = 0; ///< written under the mutex
  int stages_;
  int failed_ = -1;
  Status why_;
  std::vector<std::unique_ptr<Link>> links_;
};

} // namespace gpt2c::rt

// What one rank of several that run a plan together sees of the others, wherever they are.
#pragma once

#include "runtime/Status.h"

#include <cstddef>
#include <span>

namespace gpt2c::rt {

/// Ranks are `stages()` teams, one behind the other, each with some of the layers; the ranks of a
/// team share each of its layers. Rank r is number r % teamSize() of team r / teamSize().
class RankLink {
public:
  virtual ~RankLink() = default;
  /// From 0 to size() - 1.
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int stages() const { return 1; }
  /// Rows of a call that stages work on at a time, about; 0: as many as a device thinks best.
  virtual int microRows() const { return 0; }

  int teamSize() const { return size() / stages(); }
  int stage() const { return rank() / teamSize(); }
  int placeInTeam() const { return rank() % teamSize(); }

  /// Gives `mine` to every rank of the team and waits for theirs: `all`, of teamSize() *
  /// mine.size() bytes, is what each gave, in the order of ranks. They make the same calls in the
  /// same order. An error names the rank that does not answer; then every further call fails.
  virtual Status gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  /// Returns when every rank of the team has called it as often; errors are gather()'s.
  virtual Status meet() { return gather({}, {}); }
  /// Gives `bytes` to another rank, which receives them in the order in which they were sent. Does
  /// not wait for it.
  virtual Status send(int to, std::span<const std::byte> bytes) = 0;
  /// The next that `from` sends to this rank, as many bytes as there are; Corrupt where it sent
  /// another number.
  virtual Status receive(int from, std::span<std::byte> bytes) = 0;
};

/// How ranks stand to each other: as RankLink says.
struct Division {
  Division(int ranks = 1, int stages = 1, int microRows = 0)
      : ranks(ranks), stages(stages), microRows(microRows) {}
  int ranks, stages, microRows;
  int teamSize() const { return ranks / stages; }
};

/// What RankLink::receive() gives: `got` into `bytes`, where there are as many.
Status takeSent(int from, std::span<const std::byte> got, std::span<std::byte> bytes);

} // namespace gpt2c::rt

// What the processes of a group send each other, and who of them is lost.
#pragma once

#include "runtime/group/Rendezvous.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

namespace gpt2c::rt {

struct Frame {
  enum Kind : uint32_t {
    Beat,  ///< nothing but that the process lives
    Call,  ///< a call to make, from rank 0
    Part,  ///< what a rank gives to a gather, to rank 0
    All,   ///< what all gave, from rank 0
    Reply, ///< what became of a call
    Abort, ///< the call ends without what a gather waits for; an encoded Status
    Lost,  ///< the group ends: a rank is lost; an encoded Status
  };
  Kind kind = Beat;
  uint32_t round = 0; ///< of calls; what belongs to an earlier one is passed over
  std::vector<std::byte> bytes = {};
};

std::vector<std::byte> encodeStatus(const Status &s);
Status decodeStatus(std::span<const std::byte> bytes);

/// Connections to some ranks. A thread for each reads what comes, one more says that this process
/// lives.
class Frames {
public:
  struct Connection {
    int rank;
    Socket socket;
  };
  Frames(std::vector<Connection> peers, Clock::duration silence);
  ~Frames();

  /// Sends to peer number i. Io: that rank is lost.
  Status send(size_t i, Frame::Kind kind, uint32_t round, std::span<const std::byte> bytes);
  /// The next frame of peer number i of `round` or later that is of `kind`, or a Reply, Abort or
  /// Lost in its place. An error: one of the peers is lost, whichever.
  Result<Frame> take(size_t i, Frame::Kind kind, uint32_t round);
  size_t size() const { return peers_.size(); }
  int rankOf(size_t i) const { return peers_[i]->rank; }
  /// Whether peer i is there still.
  bool isThere(size_t i) const;
  /// No end of a connection is news from now on.
  void quit() { quits_ = true; }

private:
  struct Peer {
    int rank = 0;
    Socket socket;
    std::mutex sending;
    std::deque<Frame> frames;
    Clock::time_point heard = Clock::now();
    std::string lost; ///< why; empty: it is there
    std::thread reader;
  };
  bool isThere(const Peer &peer) const;
  /// Whether there is something to read for: until the end, and then until the others are told.
  bool goesOn() const;
  void read(Peer &peer);
  void beat();
  void lose(Peer &peer, const std::string &why);
  /// The first peer that is lost, or silent for too long. Locked.
  Status missing();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Peer>> peers_;
  Clock::duration silence_;
  Clock::time_point patience_; ///< at the end
  std::atomic<bool> ends_ = false, quits_ = false;
  std::thread beats_;
};

} // namespace gpt2c::rt

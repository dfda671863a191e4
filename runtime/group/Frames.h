// What the processes of a group send each other, and who of them is lost.
#pragma once

#include "runtime/group/Rendezvous.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
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
    Hand,  ///< what a rank sends to another, by way of rank 0
  };
  Kind kind = Beat;
  uint32_t round = 0;   ///< of calls; what belongs to an earlier one is passed over
  uint32_t address = 0; ///< of Hand: to rank 0, who shall have it; from rank 0, who sends it
  std::vector<std::byte> bytes = {};
};

std::vector<std::byte> encodeStatus(const Status &s);
Status decodeStatus(std::span<const std::byte> bytes);

/// Connections to some ranks. A thread for each reads what comes, one more says that this process
/// lives. Rank 0 hands on what others send each other, also while it computes, and an Abort of one
/// to all.
class Frames {
public:
  struct Connection {
    int rank;
    Socket socket;
  };
  /// `rank`: of this process.
  Frames(int rank, std::vector<Connection> peers, Clock::duration silence);
  ~Frames();

  /// Sends to peer number i. Io: that rank is lost.
  Status send(size_t i, Frame::Kind kind, uint32_t round, std::span<const std::byte> bytes);
  /// The next frame of peer number i of `round` or later that is of `kind`, or a Reply, Abort or
  /// Lost in its place. An error: one of the peers is lost, whichever.
  Result<Frame> take(size_t i, Frame::Kind kind, uint32_t round);
  /// Sends to any rank of the group. Io: as of send().
  Status hand(int to, uint32_t round, std::span<const std::byte> bytes);
  /// The next Hand of a rank in this round, or an Abort of the round or a Lost in its place. An
  /// error: as of take().
  Result<Frame> takeHand(int from, uint32_t round);
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
  void put(Peer &peer, Frame frame);
  Peer *peerOf(int rank);
  Status write(Peer &peer, Frame::Kind kind, uint32_t round, uint32_t address,
               std::span<const std::byte> bytes);
  void beat();
  void lose(Peer &peer, const std::string &why);
  /// A peer that is lost, or the one that is silent longest, for too long. Locked.
  Status missing();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::map<int, std::deque<Frame>> hands_; ///< by the rank that sent them
  Frame abort_;                            ///< the last of another rank, at rank 0
  int rank_;
  Clock::duration silence_;
  Clock::time_point patience_; ///< at the end
  std::atomic<bool> ends_ = false, quits_ = false;
  std::thread beats_;
};

} // namespace gpt2c::rt

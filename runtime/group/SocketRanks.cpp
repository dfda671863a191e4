#include "runtime/group/SocketRanks.h"

#include "runtime/group/Frames.h"
#include "runtime/group/GroupBackend.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

namespace gpt2c::rt {

namespace {

Clock::duration silenceOf(const Rendezvous &at) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(at.silenceSeconds));
}

/// Which of the calls that rank 0 makes it was; the first is 1.
Status atCall(const Status &s, uint32_t call) {
  return {s.code(), s.message() + ", at call " + std::to_string(call)};
}

/// What came where another frame was waited for, as an error.
Status unexpected(const Frame &frame, int rank) {
  if (frame.kind == Frame::Abort || frame.kind == Frame::Lost)
    return decodeStatus(frame.bytes);
  const Result<RankReply> reply = decodeReply(frame.bytes);
  if (!reply)
    return {reply.status().code(),
            "rank " + std::to_string(rank) + ": " + reply.status().message()};
  return {Code::Corrupt, "rank " + std::to_string(rank) + " is at another step"};
}

/// gather() by what ranks send each other: through the first of the team.
Status gatherInTeam(RankLink &link, std::span<const std::byte> mine, std::span<std::byte> all) {
  const int first = link.rank() - link.placeInTeam(), count = link.teamSize();
  if (link.rank() != first) {
    const Status s = link.send(first, mine);
    return s.ok() ? link.receive(first, all) : s;
  }
  std::ranges::copy(mine, all.begin());
  for (int r = 1; r < count; ++r)
    if (Status s = link.receive(first + r, all.subspan(size_t(r) * mine.size(), mine.size()));
        !s.ok())
      return s;
  for (int r = 1; r < count; ++r)
    if (Status s = link.send(first + r, all); !s.ok())
      return s;
  return {};
}

/// Rank 0: takes the parts of all, and gives all of them to each.
class FirstLink : public RankLink {
public:
  explicit FirstLink(const Division &division) : division_(division) {}
  int rank() const override { return 0; }
  int size() const override { return division_.ranks; }
  int stages() const override { return division_.stages; }
  int microRows() const override { return division_.microRows; }
  void connect(Frames &frames) { frames_ = &frames; }

  /// The next call begins.
  uint32_t begin() {
    aborted_ = Status();
    replied_.clear();
    return ++round_;
  }
  uint32_t round() const { return round_; }
  const Status &aborted() const { return aborted_; }

  Status send(int to, std::span<const std::byte> bytes) override {
    if (!aborted_.ok())
      return aborted_;
    const Status s = frames_->hand(to, round_, bytes);
    return s.ok() ? s : lost(s);
  }
  Status receive(int from, std::span<std::byte> bytes) override {
    if (!aborted_.ok())
      return aborted_;
    const Result<Frame> frame = frames_->takeHand(from, round_);
    if (!frame)
      return lost(frame.status());
    return frame->kind == Frame::Hand ? takeSent(from, frame->bytes, bytes)
                                      : aborted_ = decodeStatus(frame->bytes);
  }

  Status gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (stages() > 1)
      return gatherInTeam(*this, mine, all);
    if (!aborted_.ok())
      return aborted_;
    std::copy(mine.begin(), mine.end(), all.begin());
    for (size_t i = 0; i < frames_->size(); ++i) {
      Result<Frame> part = frames_->take(i, Frame::Part, round_);
      if (!part)
        return lost(part.status());
      if (part->kind == Frame::Reply)
        replied_[i] = *part;
      if (part->kind != Frame::Part || part->bytes.size() != mine.size())
        return abort(part->kind == Frame::Part
                         ? Status(Code::Corrupt, "rank " + std::to_string(i + 1) + " gives " +
                                                     std::to_string(part->bytes.size()) +
                                                     " bytes, rank 0 " +
                                                     std::to_string(mine.size()))
                         : unexpected(*part, frames_->rankOf(i)));
      std::copy(part->bytes.begin(), part->bytes.end(), all.begin() + (i + 1) * mine.size());
    }
    for (size_t i = 0; i < frames_->size(); ++i)
      if (Status s = frames_->send(i, Frame::All, round_, all); !s.ok())
        return lost(s);
    return {};
  }

  /// This call ends on all ranks.
  Status abort(const Status &why) {
    if (aborted_.ok())
      tell(Frame::Abort, why);
    return aborted_ = why;
  }
  /// The group ends.
  Status lost(const Status &why) {
    if (lost_.ok()) {
      lost_ = atCall(why, round_);
      tell(Frame::Lost, lost_);
    }
    return aborted_ = lost_;
  }
  const Status &lostRank() const { return lost_; }
  /// What peer i answered where its part of a gather was waited for.
  const Frame *reply(size_t i) const {
    auto it = replied_.find(i);
    return it == replied_.end() ? nullptr : &it->second;
  }

private:
  void tell(Frame::Kind kind, const Status &why) {
    for (size_t i = 0; i < frames_->size(); ++i)
      if (frames_->isThere(i))
        (void)frames_->send(i, kind, round_, encodeStatus(why)).ok();
  }

  Division division_;
  Frames *frames_ = nullptr;
  uint32_t round_ = 0;
  Status aborted_, lost_;
  std::map<size_t, Frame> replied_; ///< by number of the peer
};

/// The other processes, for rank 0.
class SocketRanks : public OtherRanks {
public:
  SocketRanks(std::unique_ptr<FirstLink> link, std::unique_ptr<Frames> frames)
      : link_(std::move(link)), frames_(std::move(frames)) {
    link_->connect(*frames_);
  }

  ~SocketRanks() override {
    frames_->quit();
    const std::vector<std::byte> end = encode(RankCall());
    for (size_t i = 0; i < frames_->size() && link_->lostRank().ok(); ++i)
      if (frames_->isThere(i))
        (void)frames_->send(i, Frame::Call, link_->begin(), end).ok();
  }

  int count() const override { return int(frames_->size()); }

  Status begin(std::span<const RankCall> calls) override {
    if (!link_->lostRank().ok())
      return link_->lostRank();
    const uint32_t round = link_->begin();
    std::vector<std::byte> bytes;
    for (size_t i = 0; i < frames_->size(); ++i) {
      if (i < calls.size())
        bytes = encode(calls[i]);
      if (Status s = frames_->send(i, Frame::Call, round, bytes); !s.ok())
        return link_->lost(s);
    }
    return {};
  }

  Result<std::vector<RankReply>> finish(const Status &own) override {
    if (!link_->lostRank().ok())
      return own.ok() ? link_->lostRank() : own;
    if (!own.ok() && link_->aborted().ok())
      (void)link_->abort({own.code(), "rank 0: " + own.message()}).ok();
    std::vector<RankReply> replies;
    Status first;
    for (size_t i = 0; i < frames_->size(); ++i) {
      Result<Frame> frame = nextReply(i);
      if (!frame)
        return link_->lost(frame.status());
      Result<RankReply> reply = decodeReply(frame->bytes);
      if (reply)
        replies.push_back(reply.take());
      else if (first.ok())
        first = {reply.status().code(),
                 "rank " + std::to_string(frames_->rankOf(i)) + ": " + reply.status().message()};
    }
    if (!own.ok())
      return own;
    if (!first.ok())
      return first;
    return replies;
  }

private:
  /// A rank that was in a gather may have given its part before it was told of the end.
  Result<Frame> nextReply(size_t i) {
    if (const Frame *early = link_->reply(i))
      return *early;
    for (;;) {
      Result<Frame> frame = frames_->take(i, Frame::Reply, link_->round());
      if (!frame || frame->kind == Frame::Reply)
        return frame;
      if (frame->kind == Frame::Lost)
        return decodeStatus(frame->bytes);
    }
  }

  std::unique_ptr<FirstLink> link_;
  std::unique_ptr<Frames> frames_;
};

/// Another rank.
class FollowingLink : public RankLink {
public:
  FollowingLink(int rank, const Division &division) : rank_(rank), division_(division) {}
  int rank() const override { return rank_; }
  int size() const override { return division_.ranks; }
  int stages() const override { return division_.stages; }
  int microRows() const override { return division_.microRows; }
  void begin(Frames &frames, uint32_t round) {
    frames_ = &frames, round_ = round;
    told_ = Status();
  }
  const Status &lost() const { return lost_; }
  /// Ends the call on ranks that wait for this one, where it is this one that failed.
  Status abort(const Status &why) {
    if (stages() == 1 || !told_.ok()) // else rank 0 waits for this rank, and sees its answer
      return {};
    const Status named(why.code(), "rank " + std::to_string(rank_) + ": " + why.message());
    return frames_->send(0, Frame::Abort, round_, encodeStatus(named));
  }

  Status send(int to, std::span<const std::byte> bytes) override {
    const Status s = frames_->hand(to, round_, bytes);
    return s.ok() ? s : lost_ = atCall(s, round_);
  }
  Status receive(int from, std::span<std::byte> bytes) override {
    const Result<Frame> frame = frames_->takeHand(from, round_);
    if (!frame)
      return lost_ = atCall(frame.status(), round_);
    if (frame->kind == Frame::Hand)
      return takeSent(from, frame->bytes, bytes);
    told_ = decodeStatus(frame->bytes);
    return frame->kind == Frame::Lost ? lost_ = told_ : told_;
  }

  Status gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (stages() > 1)
      return gatherInTeam(*this, mine, all);
    if (Status s = frames_->send(0, Frame::Part, round_, mine); !s.ok())
      return lost_ = atCall(s, round_);
    Result<Frame> frame = frames_->take(0, Frame::All, round_);
    if (!frame)
      return lost_ = atCall(frame.status(), round_);
    if (frame->kind == Frame::Lost)
      return lost_ = decodeStatus(frame->bytes);
    if (frame->kind != Frame::All)
      return unexpected(*frame, 0);
    if (frame->bytes.size() != all.size())
      return {Code::Corrupt, "rank 0 is at another step"};
    std::copy(frame->bytes.begin(), frame->bytes.end(), all.begin());
    return {};
  }

private:
  int rank_;
  Division division_;
  Frames *frames_ = nullptr;
  uint32_t round_ = 0;
  Status lost_, told_; ///< told_: that the call has ended elsewhere
};

/// What all ranks have to have in common.
uint64_t sharedBy(const Plan &plan, const Rendezvous &at) {
  return plan.meta().model_hash + uint64_t(at.stages) - 1 + (uint64_t(at.microRows) << 8);
}

std::unique_ptr<Frames> framesOf(std::vector<Socket> sockets, const Rendezvous &at) {
  std::vector<Frames::Connection> peers;
  for (size_t r = 0; r < sockets.size(); ++r)
    if (sockets[r].valid())
      peers.push_back({at.rank == 0 ? int(r) : 0, std::move(sockets[r])});
  return std::make_unique<Frames>(at.rank, std::move(peers), silenceOf(at));
}

} // namespace

Result<std::unique_ptr<Backend>> openSocketRanks(const Plan::Ptr &plan, const Rendezvous &at,
                                                 const OpenRank &open) {
  const Division division(at.ranks, at.stages, at.microRows);
  if (Status s = checkDivision(plan->meta(), division); !s.ok())
    return s;
  auto link = std::make_unique<FirstLink>(division);
  Result<std::unique_ptr<Backend>> first = open(*link);
  if (!first)
    return first.status();
  Result<std::vector<Socket>> sockets = meet(at, sharedBy(*plan, at));
  if (!sockets)
    return sockets.status();
  auto others = std::make_unique<SocketRanks>(std::move(link), framesOf(sockets.take(), at));
  return makeGroupBackend(plan, first.take(), std::move(others), division);
}

Status followRank(const Plan::Ptr &plan, const Rendezvous &at, const OpenRank &open) {
  const Division division(at.ranks, at.stages, at.microRows);
  if (Status s = checkDivision(plan->meta(), division); !s.ok())
    return s;
  FollowingLink link(at.rank, division);
  Result<std::unique_ptr<Backend>> backend = open(link);
  if (!backend)
    return backend.status();
  Result<std::vector<Socket>> sockets = meet(at, sharedBy(*plan, at));
  if (!sockets)
    return sockets.status();
  const std::unique_ptr<Frames> frames = framesOf(sockets.take(), at);
  for (uint32_t round = 0;;) {
    Result<Frame> frame = frames->take(0, Frame::Call, round);
    if (!frame)
      return atCall(frame.status(), round + 1);
    if (frame->kind == Frame::Lost)
      return decodeStatus(frame->bytes);
    if (frame->kind != Frame::Call) // the end of a call that has ended here
      continue;
    round = frame->round;
    Result<RankCall> call = decodeCall(frame->bytes);
    if (!call)
      return call.status();
    if (call->kind == RankCall::End)
      return {};
    link.begin(*frames, round);
    const Result<RankReply> reply = perform(**backend, *call);
    if (!link.lost().ok())
      return reply ? link.lost() : reply.status();
    if (Status s = reply ? Status() : link.abort(reply.status()); !s.ok())
      return atCall(s, round);
    if (Status s = frames->send(0, Frame::Reply, round, encode(reply)); !s.ok())
      return atCall(s, round);
  }
}

} // namespace gpt2c::rt

#include "runtime/group/Frames.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace gpt2c::rt {

namespace {

struct Header {
  uint32_t magic = 0x72633267; // "g2cr"
  uint32_t kind = 0;
  uint32_t round = 0;
  uint32_t address = 0;
  uint64_t bytes = 0;
};

constexpr uint64_t mostBytes = uint64_t(1) << 34;
constexpr auto beatEvery = std::chrono::milliseconds(100);

} // namespace

std::vector<std::byte> encodeStatus(const Status &s) {
  std::vector<std::byte> out(1 + s.message().size());
  out[0] = std::byte(int(s.code()));
  std::memcpy(out.data() + 1, s.message().data(), s.message().size());
  return out;
}

Status decodeStatus(std::span<const std::byte> bytes) {
  if (bytes.empty() || int(bytes[0]) < 1 || int(bytes[0]) > int(Code::OutOfMemory))
    return {Code::Cuda, "another rank failed"};
  return {Code(int(bytes[0])),
          std::string(reinterpret_cast<const char *>(bytes.data()) + 1, bytes.size() - 1)};
}

Frames::Frames(int rank, std::vector<Connection> peers, Clock::duration silence)
    : rank_(rank), silence_(silence) {
  for (Connection &c : peers) {
    peers_.push_back(std::make_unique<Peer>());
    peers_.back()->rank = c.rank;
    peers_.back()->socket = std::move(c.socket);
  }
  for (auto &peer : peers_)
    peer->reader = std::thread([this, p = peer.get()] { read(*p); });
  beats_ = std::thread([this] { beat(); });
}

Frames::~Frames() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    patience_ = Clock::now() + std::chrono::milliseconds(300);
  }
  changed_.notify_all();
  beats_.join();
  // What was sent last arrives only where nothing that came is left unread: a socket that closes
  // over such bytes takes back its own.
  for (auto &peer : peers_)
    isThere(*peer) ? peer->socket.endSending() : peer->socket.shutdown();
  for (auto &peer : peers_)
    peer->reader.join();
}

void Frames::lose(Peer &peer, const std::string &why) {
  const std::lock_guard lock(mutex_);
  if (peer.lost.empty())
    peer.lost = why;
  changed_.notify_all();
}

bool Frames::goesOn() const {
  if (!ends_)
    return true;
  const std::lock_guard lock(mutex_);
  return Clock::now() < patience_;
}

void Frames::read(Peer &peer) {
  while (goesOn()) {
    if (!peer.socket.readable(beatEvery))
      continue;
    Header header;
    Status s = peer.socket.receive(std::as_writable_bytes(std::span(&header, 1)), silence_);
    if (s.ok() &&
        (header.magic != Header().magic || header.bytes > mostBytes || header.kind > Frame::Hand))
      s = {Code::Io, "it sends what is no frame"};
    Frame frame{Frame::Kind(header.kind), header.round, header.address};
    // As much as comes: a number alone takes no memory.
    for (uint64_t left = s.ok() ? header.bytes : 0; left > 0 && s.ok();) {
      const size_t at = frame.bytes.size(), some = std::min<uint64_t>(left, 1 << 20);
      frame.bytes.resize(at + some);
      s = peer.socket.receive(std::span(frame.bytes).subspan(at), silence_);
      left -= some;
      const std::lock_guard lock(mutex_);
      peer.heard = Clock::now();
    }
    if (!s.ok())
      return lose(peer, s.message());
    put(peer, std::move(frame));
  }
}

/// A frame that came: kept for who takes it, or handed on.
void Frames::put(Peer &peer, Frame frame) {
  const bool routes = rank_ == 0 && ((frame.kind == Frame::Hand && frame.address != 0) ||
                                     frame.kind == Frame::Abort);
  if (routes && frame.kind == Frame::Hand) {
    Peer *to = peerOf(int(frame.address));
    frame.address = uint32_t(peer.rank);
    if (to && isThere(*to))
      (void)write(*to, frame.kind, frame.round, frame.address, frame.bytes)
          .ok(); // else it is lost, which all are told
  } else if (routes) {
    for (auto &other : peers_)
      if (other.get() != &peer && isThere(*other))
        (void)write(*other, frame.kind, frame.round, 0, frame.bytes).ok();
  }
  const std::lock_guard lock(mutex_);
  peer.heard = Clock::now(); // it may have waited for one that hangs
  if (frame.kind == Frame::Abort && rank_ == 0)
    abort_ = std::move(frame);
  else if (frame.kind == Frame::Hand && !routes)
    hands_[rank_ == 0 ? peer.rank : int(frame.address)].push_back(std::move(frame));
  else if (frame.kind != Frame::Beat && !routes)
    peer.frames.push_back(std::move(frame));
  changed_.notify_all();
}

Frames::Peer *Frames::peerOf(int rank) {
  auto it = std::ranges::find(peers_, rank, [](const auto &p) { return p->rank; });
  return it == peers_.end() ? nullptr : it->get();
}

void Frames::beat() {
  const Header header;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, beatEvery, [this] { return bool(ends_); })) {
    lock.unlock();
    for (auto &peer : peers_)
      if (std::unique_lock sending(peer->sending, std::try_to_lock); sending && isThere(*peer))
        if (Status s = peer->socket.send(std::as_bytes(std::span(&header, 1)), silence_); !s.ok())
          lose(*peer, s.message());
    lock.lock();
  }
}

bool Frames::isThere(const Peer &peer) const {
  const std::lock_guard lock(mutex_);
  return peer.lost.empty();
}

bool Frames::isThere(size_t i) const { return isThere(*peers_[i]); }

Status Frames::write(Peer &peer, Frame::Kind kind, uint32_t round, uint32_t address,
                     std::span<const std::byte> bytes) {
  Header header;
  header.kind = kind;
  header.round = round;
  header.address = address;
  header.bytes = bytes.size();
  const std::lock_guard sending(peer.sending);
  Status s = peer.socket.send(std::as_bytes(std::span(&header, 1)), silence_);
  if (s.ok())
    s = peer.socket.send(bytes, silence_);
  if (s.ok())
    return {};
  lose(peer, s.message());
  const std::lock_guard lock(mutex_);
  return missing();
}

Status Frames::send(size_t i, Frame::Kind kind, uint32_t round, std::span<const std::byte> bytes) {
  return write(*peers_[i], kind, round, 0, bytes);
}

Status Frames::hand(int to, uint32_t round, std::span<const std::byte> bytes) {
  // Rank 0 has a connection to each, the others have one to it.
  if (Peer *peer = peerOf(to); peer && rank_ == 0)
    return write(*peer, Frame::Hand, round, 0, bytes);
  return write(*peers_[0], Frame::Hand, round, uint32_t(to), bytes);
}

Status Frames::missing() {
  if (quits_)
    return {};
  for (const auto &peer : peers_)
    if (!peer->lost.empty())
      return {Code::Cuda, "rank " + std::to_string(peer->rank) + " is lost: " + peer->lost};
  if (peers_.empty())
    return {};
  // One that hangs may keep others from being heard for a while.
  const auto &silent =
      *std::ranges::min_element(peers_, {}, [](const auto &p) { return p->heard; });
  const auto since = Clock::now() - silent->heard;
  if (since <= silence_)
    return {};
  char text[48];
  std::snprintf(text, sizeof text, "nothing is heard of it for %.1f s",
                std::chrono::duration<double>(since).count());
  silent->lost = text;
  return {Code::Cuda, "rank " + std::to_string(silent->rank) + " is lost: " + text};
}

Result<Frame> Frames::takeHand(int from, uint32_t round) {
  std::unique_lock lock(mutex_);
  for (;;) {
    for (auto &hands = hands_[from]; !hands.empty();) {
      Frame frame = std::move(hands.front());
      hands.pop_front();
      if (frame.round >= round)
        return frame;
    }
    if (abort_.kind == Frame::Abort && abort_.round >= round)
      return abort_;
    for (const auto &peer : peers_)
      for (const Frame &f : peer->frames)
        if (f.kind == Frame::Lost || (f.kind == Frame::Abort && f.round >= round))
          return f;
    if (Status s = missing(); !s.ok())
      return s;
    changed_.wait_for(lock, beatEvery / 2);
  }
}

Result<Frame> Frames::take(size_t i, Frame::Kind kind, uint32_t round) {
  Peer &peer = *peers_[i];
  std::unique_lock lock(mutex_);
  for (;;) {
    while (!peer.frames.empty()) {
      Frame frame = std::move(peer.frames.front());
      peer.frames.pop_front();
      if (frame.kind == Frame::Lost)
        return frame;
      if (frame.round >= round &&
          (frame.kind == kind || frame.kind == Frame::Reply || frame.kind == Frame::Abort))
        return frame;
    }
    if (Status s = missing(); !s.ok())
      return s;
    changed_.wait_for(lock, beatEvery / 2);
  }
}

} // namespace gpt2c::rt

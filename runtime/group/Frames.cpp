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
  uint32_t reserved = 0;
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

Frames::Frames(std::vector<Connection> peers, Clock::duration silence) : silence_(silence) {
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
        (header.magic != Header().magic || header.bytes > mostBytes || header.kind > Frame::Lost))
      s = {Code::Io, "it sends what is no frame"};
    Frame frame{Frame::Kind(header.kind), header.round};
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
    const std::lock_guard lock(mutex_);
    peer.heard = Clock::now();
    if (frame.kind != Frame::Beat) {
      peer.frames.push_back(std::move(frame));
      changed_.notify_all();
    }
  }
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

Status Frames::send(size_t i, Frame::Kind kind, uint32_t round, std::span<const std::byte> bytes) {
  Peer &peer = *peers_[i];
  Header header;
  header.kind = kind;
  header.round = round;
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

Status Frames::missing() {
  if (quits_)
    return {};
  const auto now = Clock::now();
  for (const auto &peer : peers_) {
    const std::string who = "rank " + std::to_string(peer->rank);
    if (!peer->lost.empty())
      return {Code::Cuda, who + " is lost: " + peer->lost};
    if (now - peer->heard > silence_) {
      char text[48];
      std::snprintf(text, sizeof text, "nothing is heard of it for %.1f s",
                    std::chrono::duration<double>(now - peer->heard).count());
      peer->lost = text;
      return {Code::Cuda, who + " is lost: " + text};
    }
  }
  return {};
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

// TCP with deadlines.
#pragma once

#include "runtime/Status.h"

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

namespace gpt2c::rt {

using Clock = std::chrono::steady_clock;

/// A connection, or what listens for some. No call waits for ever, and none is ended by a signal.
class Socket {
public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket &&other) noexcept : fd_(other.release()) {}
  Socket &operator=(Socket &&other) noexcept;
  ~Socket();
  bool valid() const { return fd_ >= 0; }

  /// Listens at the port: at the loopback interface alone where `address` is it, else at all.
  static Result<Socket> listenAt(const std::string &address, int port);
  /// Tries until `deadline`, so that who listens may come later.
  static Result<Socket> connectTo(const std::string &address, int port, Clock::time_point deadline);
  /// The next connection; not valid where none came before `deadline`.
  Result<Socket> accept(Clock::time_point deadline) const;

  /// All bytes. Io: the connection closed, or nothing moved for `patience`.
  Status send(std::span<const std::byte> bytes, Clock::duration patience) const;
  Status receive(std::span<std::byte> bytes, Clock::duration patience) const;
  /// Whether bytes, or the end of the connection, are there within `most`.
  bool readable(Clock::duration most) const;
  /// The other end gets all that was sent, and then the end.
  void endSending() const;
  /// Ends the connection under calls of other threads.
  void shutdown() const;

private:
  int release() { return std::exchange(fd_, -1); }
  int fd_ = -1;
};

} // namespace gpt2c::rt

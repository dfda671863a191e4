#include "runtime/group/Socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace gpt2c::rt {

namespace {

std::string reason(int error) { return std::strerror(error); }

/// Whether the events come within `most`; errors and ends count as such.
bool waitFor(int fd, short events, Clock::duration most) {
  const auto until = Clock::now() + most;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd p{fd, events, 0};
    const int n = ::poll(&p, 1, int(std::clamp<long long>(left, 0, 60'000)));
    if (n > 0)
      return true;
    if (n == 0 && Clock::now() >= until)
      return false;
    if (n < 0 && errno != EINTR)
      return true; // the call that follows says what is wrong
  }
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Result<Addresses> resolve(const std::string &address, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo *found = nullptr;
  if (const int e = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found))
    return {Code::Usage, "the address '" + address + "' is not known: " + gai_strerror(e)};
  return Addresses(found, &freeaddrinfo);
}

void sendAtOnce(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool isLoopback(const sockaddr &a) {
  if (a.sa_family == AF_INET)
    return (ntohl(reinterpret_cast<const sockaddr_in &>(a).sin_addr.s_addr) >> 24) == 127;
  return a.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6 &>(a).sin6_addr);
}

} // namespace

Socket &Socket::operator=(Socket &&other) noexcept {
  if (this != &other) {
    if (fd_ >= 0)
      ::close(fd_);
    fd_ = other.release();
  }
  return *this;
}

Socket::~Socket() {
  if (fd_ >= 0)
    ::close(fd_);
}

Result<Socket> Socket::listenAt(const std::string &address, int port) {
  Result<Addresses> found = resolve(address, port);
  if (!found)
    return found.status();
  addrinfo *at = found->get();
  Socket s(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  setsockopt(s.fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (!isLoopback(*at->ai_addr)) {
    if (at->ai_family == AF_INET)
      reinterpret_cast<sockaddr_in *>(at->ai_addr)->sin_addr.s_addr = htonl(INADDR_ANY);
    else
      reinterpret_cast<sockaddr_in6 *>(at->ai_addr)->sin6_addr = in6addr_any;
  }
  if (!s.valid() || ::bind(s.fd_, at->ai_addr, at->ai_addrlen) != 0 || ::listen(s.fd_, 128) != 0)
    return {Code::Io,
            "rank 0 cannot listen at port " + std::to_string(port) + ": " + reason(errno)};
  return s;
}

Result<Socket> Socket::connectTo(const std::string &address, int port, Clock::time_point deadline) {
  std::string why = "nobody listens";
  do {
    Result<Addresses> found = resolve(address, port); // names come late, too
    if (!found)
      why = found.status().message();
    for (const addrinfo *at = found ? found->get() : nullptr; at; at = at->ai_next) {
      Socket s(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      int error = 0;
      socklen_t size = sizeof error;
      if (::connect(s.fd_, at->ai_addr, at->ai_addrlen) != 0 && errno != EINPROGRESS)
        error = errno;
      else if (!waitFor(s.fd_, POLLOUT, deadline - Clock::now()))
        error = ETIMEDOUT;
      else
        getsockopt(s.fd_, SOL_SOCKET, SO_ERROR, &error, &size);
      if (error == 0) {
        sendAtOnce(s.fd_);
        return s;
      }
      why = reason(error);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (Clock::now() < deadline);
  return {Code::Io, why};
}

Result<Socket> Socket::accept(Clock::time_point deadline) const {
  while (waitFor(fd_, POLLIN, deadline - Clock::now())) {
    Socket s(::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (s.valid()) {
      sendAtOnce(s.fd_);
      return s;
    }
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
      return {Code::Io, "rank 0 cannot take connections: " + reason(errno)};
  }
  return Socket();
}

Status Socket::send(std::span<const std::byte> bytes, Clock::duration patience) const {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0)
      bytes = bytes.subspan(size_t(n));
    else if (errno != EAGAIN && errno != EINTR)
      return {Code::Io, "its connection closed (" + reason(errno) + ")"};
    else if (errno == EAGAIN && !waitFor(fd_, POLLOUT, patience))
      return {Code::Io, "it takes nothing"};
  }
  return {};
}

Status Socket::receive(std::span<std::byte> bytes, Clock::duration patience) const {
  while (!bytes.empty()) {
    if (!waitFor(fd_, POLLIN, patience))
      return {Code::Io, "it is silent"};
    const ssize_t n = ::recv(fd_, bytes.data(), bytes.size(), 0);
    if (n > 0)
      bytes = bytes.subspan(size_t(n));
    else if (n == 0)
      return {Code::Io, "its connection closed"};
    else if (errno != EAGAIN && errno != EINTR)
      return {Code::Io, "its connection closed (" + reason(errno) + ")"};
  }
  return {};
}

bool Socket::readable(Clock::duration most) const { return waitFor(fd_, POLLIN, most); }

void Socket::endSending() const {
  if (fd_ >= 0)
    ::shutdown(fd_, SHUT_WR);
}

void Socket::shutdown() const {
  if (fd_ >= 0)
    ::shutdown(fd_, SHUT_RDWR);
}

} // namespace gpt2c::rt

// The service over HTTP/1.1: connections, their limits and their times.
#pragma once

#include "server/Service.h"

#include <chrono>
#include <memory>
#include <string>

namespace gpt2c::serve {

struct HttpOptions {
  std::string host = "127.0.0.1"; ///< an address, not a name
  int port = 8000;                ///< 0: any that is free
  int threads = 2;
  int maxConnections = 4096;
  uint32_t maxHeaderBytes = 16 * 1024;
  uint64_t maxBodyBytes = 8 * 1024 * 1024;
  std::chrono::milliseconds idleTimeout{75'000};  ///< between requests
  std::chrono::milliseconds readTimeout{30'000};  ///< from a request's first byte to its last
  std::chrono::milliseconds writeTimeout{30'000}; ///< of a part that the client does not take
};

class HttpServer {
public:
  /// Listens. Errors: Usage for an address that is none, Io where it cannot be had.
  static rt::Result<std::unique_ptr<HttpServer>> listen(Service &service, HttpOptions options);
  /// Ends the threads; connections are closed.
  ~HttpServer();

  int port() const;
  /// Takes no more connections and closes those that are idle.
  void drain();
  /// Calls `handler` on a thread of the server with each of these signals that comes.
  void onSignals(std::initializer_list<int> signals, std::function<void(int)> handler);

  struct Impl;

private:
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// What a parser of the server's makes of bytes that a client sent: the request, or nothing where
/// they are none, whole, within the limits.
std::optional<HttpRequest> parseHttp(std::string_view bytes, const HttpOptions &options);

} // namespace gpt2c::serve

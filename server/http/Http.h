// A request and where its answer goes, apart from sockets: HttpServer.cpp has those.
#pragma once

#include "server/Tracing.h"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gpt2c::serve {

struct HttpRequest {
  std::string method = {}, path = {}; ///< without the query
  std::string body = {};
  /// Of the headers.
  std::string contentType = {}, authorization = {}, requestId = {}, traceParent = {};
  std::string contentEncoding = {};
  std::optional<Trace> trace = {};                  ///< none: it is not traced
  std::chrono::steady_clock::time_point begun = {}; ///< when the service had it
};

struct HttpResponse {
  int status = 200;
  std::string body = {};
  std::string contentType = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
};

/// Where one request's answer goes: a whole one by send(), or a stream by begin(), any number of
/// write() and end(). All members but post() are called on the connection's own thread of control,
/// on which post() runs what it is given.
class Responder {
public:
  virtual ~Responder() = default;

  /// Runs `work` soon; from any thread.
  virtual void post(std::function<void()> work) = 0;
  virtual void send(HttpResponse response) = 0;
  /// Server-sent events follow.
  virtual void begin(HttpResponse head) = 0;
  /// True: the next part can be taken at once. Else `written` is called when it can, and never
  /// where the client has gone.
  virtual bool write(std::string part, std::function<void()> written) = 0;
  /// Behind `last` the stream ends.
  virtual void end(std::string last) = 0;
  /// The answer breaks off here.
  virtual void abort() = 0;
  /// Called at most once: the client has gone before the answer was sent. Nothing is called then.
  virtual void onGone(std::function<void()> gone) = 0;
  /// Calls `then` after a time, in place of what was to be called before.
  virtual void after(std::chrono::milliseconds time, std::function<void()> then) = 0;
};

} // namespace gpt2c::serve

// Spans of requests: their place in a trace comes by W3C's trace context, and they go to a
// collector as OTLP over HTTP in JSON.
#pragma once

#include "server/Metrics.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace gpt2c::serve {

/// The trace that a request is a part of, and the span that it is there; ids in digits of base 16.
struct Trace {
  std::string id;     ///< 32 digits
  std::string span;   ///< 16 digits
  std::string parent; ///< of the caller's span; empty: it begins the trace
  bool sampled = true;

  /// What a traceparent header says, with a span of its own; nothing where it is none.
  static std::optional<Trace> of(std::string_view header);
  /// A new one.
  static Trace begin();
  /// The header for whom the request is passed on to, or back to.
  std::string header() const;
};

struct Span {
  using Clock = std::chrono::steady_clock;
  using Attribute = std::pair<const char *, std::variant<int64_t, std::string>>;

  Trace trace = {};
  std::string name = {};
  bool isServer = false; ///< it answers a request; else it is a part of that
  bool failed = false;
  Clock::time_point begin = {}, end = {};
  std::vector<Attribute> attributes = {};
};

/// Spans that are parts of another one.
Trace partOf(const Trace &trace);

/// The body of a request of OTLP.
std::string otlpOf(const std::vector<Span> &spans);

struct SpanTarget {
  std::string host, port, path;
};

/// Sends spans in batches, on a thread of its own.
class SpanSender {
public:
  SpanSender(SpanTarget target, Metrics &metrics);
  /// Tries to send what waits, once.
  ~SpanSender();
  SpanSender(const SpanSender &) = delete;
  SpanSender &operator=(const SpanSender &) = delete;

  /// Returns at once: what finds too many waiting is dropped, and counted.
  void send(std::vector<Span> spans);

private:
  void run();
  bool post(const std::string &body) const;

  const SpanTarget target_;
  Metrics &metrics_;
  std::mutex mutex_; ///< of what follows
  std::condition_variable changed_;
  std::vector<Span> waiting_;
  bool ending_ = false;
  std::thread thread_; ///< begun last
};

} // namespace gpt2c::serve

// Counters of a server in Prometheus' text format, by the names that vLLM gave them, with the
// prefix "gpt2c:".
#pragma once

#include "runtime/engine/Engine.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace gpt2c::serve {

/// Thread-safe, without locks.
class Histogram {
public:
  /// `bounds` ascend, are at most 32, and outlive the histogram.
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds) {}
  void observe(double value);
  /// Its lines; `name` without "_bucket", `labels` without braces.
  void write(std::string &to, const std::string &name, const std::string &labels) const;
  uint64_t count() const;

private:
  std::span<const double> bounds_;
  std::array<std::atomic<uint64_t>, 33> counts_ = {};
  std::atomic<double> sum_ = 0;
};

/// From 50 microseconds, as steps of small models are, to minutes.
std::span<const double> secondsBounds();
std::span<const double> tokensBounds();

struct Metrics {
  Histogram firstToken{secondsBounds()}, betweenTokens{secondsBounds()},
      perOutputToken{secondsBounds()}, whole{secondsBounds()}, queue{secondsBounds()},
      prefill{secondsBounds()}, decode{secondsBounds()};
  Histogram promptTokens{tokensBounds()}, newTokens{tokensBounds()};
  std::atomic<int64_t> promptTokensTotal = 0, newTokensTotal = 0;
  std::array<std::atomic<int64_t>, rt::finishes> ended = {}; ///< by Finish
  std::atomic<int64_t> connections = 0;                      ///< open now
  std::atomic<int64_t> spansSent = 0, spansDropped = 0;
  std::atomic<int64_t> queuedTokens = 0; ///< prompt tokens of requests without a token yet

  /// Counts an answer of HTTP.
  void answered(const std::string &path, int status);

  /// The page of /metrics. `stats` are null while no model is there.
  std::string page(const std::string &model, const rt::EngineStats *stats) const;

private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> answers_; ///< of routes that are known
};

} // namespace gpt2c::serve

// What happened when, as a file for Perfetto or chrome://tracing.
#pragma once

#include "runtime/Status.h"
#include "tools/runtime-common/Json.h"

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace gpt2c {

class Trace {
public:
  /// Milliseconds since the trace was made.
  double now() const {
    return std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
  }
  /// Something that took time, on a track of its own name; times in milliseconds.
  void span(const std::string &track, const std::string &name, double begin, double duration,
            Json args = {});
  /// Writes the trace in the JSON format of Chrome; "-" is standard output.
  rt::Status write(const std::string &path);

private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
  std::map<std::string, int> tracks_;
  Json events_ = Json::array();
};

} // namespace gpt2c

#include "tools/gpt2c-bench/Trace.h"

#include "tools/runtime-common/Files.h"

namespace gpt2c {

void Trace::span(const std::string &track, const std::string &name, double begin, double duration,
                 Json args) {
  auto [it, isNew] = tracks_.try_emplace(track, int(tracks_.size()) + 1);
  if (isNew)
    events_.push_back(Json{{"name", "thread_name"},
                           {"ph", "M"},
                           {"pid", 1},
                           {"tid", it->second},
                           {"args", Json{{"name", track}}}});
  events_.push_back(Json{{"name", name},
                         {"ph", "X"},
                         {"pid", 1},
                         {"tid", it->second},
                         {"ts", begin * 1e3}, // microseconds
                         {"dur", duration * 1e3},
                         {"args", std::move(args)}});
}

rt::Status Trace::write(const std::string &path) {
  return writeOutput(path, line({{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events_)}}));
}

} // namespace gpt2c

#include "tools/gpt2c-bench/Trace.h"

#include "tools/common/CommandLine.h"

namespace gpt2c {

void Trace::span(const std::string &track, const std::string &name, double begin, double duration,
                 llvm::json::Object args) {
  auto [it, isNew] = tracks_.try_emplace(track, int(tracks_.size()) + 1);
  if (isNew)
    events_.push_back(llvm::json::Object{{"name", "thread_name"},
                                         {"ph", "M"},
                                         {"pid", 1},
                                         {"tid", it->second},
                                         {"args", llvm::json::Object{{"name", track}}}});
  events_.push_back(llvm::json::Object{{"name", name},
                                       {"ph", "X"},
                                       {"pid", 1},
                                       {"tid", it->second},
                                       {"ts", begin * 1e3}, // microseconds
                                       {"dur", duration * 1e3},
                                       {"args", std::move(args)}});
}

llvm::Error Trace::write(llvm::StringRef path) {
  llvm::json::Object object{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events_)}};
  return writeOutput(
      path, [&](llvm::raw_ostream &os) { os << llvm::json::Value(std::move(object)) << "\n"; });
}

} // namespace gpt2c

#include "runtime/cuda/GraphCache.h"

#include <algorithm>

namespace gpt2c::rt::cuda {

namespace {
/// An engine under load has calls of more than a hundred sizes, in two slots each: rows, pieces and
/// segments. What is captured again and again costs it more than what is kept.
constexpr size_t kMostEntries = 512;
} // namespace

Status GraphCache::run(const Key &key, int directUses, const std::function<Status()> &enqueue) {
  Entry &entry = entryOf(key);
  if (!entry.graph.valid()) {
    if (entry.uses++ < directUses)
      return enqueue();
    if (Status s = capture(entry, enqueue); !s.ok())
      return s;
  }
  return entry.graph.launch();
}

Status GraphCache::prepare(const Key &key, const std::function<Status()> &enqueue) {
  Entry &entry = entryOf(key);
  if (entry.graph.valid())
    return {};
  if (Status s = capture(entry, enqueue); !s.ok())
    return s;
  return entry.graph.upload();
}

GraphCache::Entry &GraphCache::entryOf(const Key &key) {
  if (!entries_.contains(key))
    evict();
  Entry &entry = entries_[key];
  entry.lastUse = ++clock_;
  return entry;
}

Status GraphCache::capture(Entry &entry, const std::function<Status()> &enqueue) {
  if (Status s = Graph::beginCapture(*device_); !s.ok())
    return s;
  Result<Graph> graph = Graph::finishCapture(device_, enqueue());
  if (!graph)
    return graph.status();
  entry.graph = graph.take();
  return {};
}

void GraphCache::evict() {
  if (entries_.size() < kMostEntries)
    return;
  entries_.erase(
      std::ranges::min_element(entries_, {}, [](const auto &item) { return item.second.lastUse; }));
}

} // namespace gpt2c::rt::cuda

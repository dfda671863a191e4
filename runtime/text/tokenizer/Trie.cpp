#include "runtime/text/tokenizer/Trie.h"

#include <algorithm>
#include <cstddef>

namespace gpt2c::rt {

Trie::Trie(std::vector<std::pair<std::string_view, std::int32_t>> entries) {
  roots_.fill(kNone);
  std::ranges::stable_sort(entries, {}, [](const auto &entry) { return entry.first; });
  // The entries [begin, end) share the first `depth` bytes, which lead to `node`.
  struct Pending {
    Node node;
    std::size_t begin, end, depth;
  };
  std::vector<Pending> queue = {{kRoot, 0, entries.size(), 0}};
  for (std::size_t i = 0; i < queue.size(); ++i) {
    auto [node, at, end, depth] = queue[i];
    for (; at < end && entries[at].first.size() == depth; ++at)
      if (depth > 0)
        values_[node] = entries[at].second;
    children_[node].first = Node(labels_.size());
    while (at < end) {
      const auto label = std::uint8_t(entries[at].first[depth]);
      const std::size_t begin = at;
      while (at < end && std::uint8_t(entries[at].first[depth]) == label)
        ++at;
      const auto child = Node(labels_.size());
      labels_.push_back(label);
      values_.push_back(-1);
      children_.push_back({0, 0});
      ++children_[node].count;
      if (node == kRoot)
        roots_[label] = child;
      queue.push_back({child, begin, at, depth + 1});
    }
  }
}

} // namespace gpt2c::rt

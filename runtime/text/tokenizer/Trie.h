// Strings by their prefixes: which of them does a text begin with?
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace gpt2c::rt {

class Trie {
public:
  using Node = std::uint32_t;
  static constexpr Node kNone = 0, kRoot = 0; // no edge leads to the root

  Trie() { roots_.fill(kNone); }
  /// Strings with a value of at least 0. Empty strings are left out; of equal ones the last counts.
  explicit Trie(std::vector<std::pair<std::string_view, std::int32_t>> entries);

  /// Where `byte` leads from a node; kNone: no string goes on so.
  Node next(Node node, std::uint8_t byte) const {
    if (node == kRoot)
      return roots_[byte];
    const Children &c = children_[node];
    for (Node child = c.first; child < c.first + c.count; ++child)
      if (labels_[child] >= byte)
        return labels_[child] == byte ? child : kNone;
    return kNone;
  }

  /// The value of the string that ends at a node, -1: none does.
  std::int32_t value(Node node) const { return values_[node]; }

  bool empty() const { return values_.size() <= 1; }

private:
  struct Children {
    Node first;
    std::uint16_t count;
  };
  std::array<Node, 256> roots_;
  // By node; the children of a node lie together, in the order of their labels.
  std::vector<Children> children_{{0, 0}};
  std::vector<std::uint8_t> labels_{0};
  std::vector<std::int32_t> values_{-1};
};

} // namespace gpt2c::rt

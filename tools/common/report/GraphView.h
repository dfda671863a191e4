// Functions as people look at them: ops without the constants, which are lines of what reads them.
#pragma once

#include "ir/Function.h"

#include <string>
#include <vector>

namespace gpt2c {

struct NodeView {
  std::string title;                   ///< "linear + bias": the optional operands that are present
  std::vector<std::string> attributes; ///< "activation = gelu_tanh"; not those at their defaults
  std::vector<std::string> constants;  ///< "w: f32[768, 256]"
  std::vector<std::string> types;      ///< of the results
  std::vector<int> inputs; ///< nodes before this one; -1 for the first argument, -2 for the second
  std::vector<std::string> from; ///< names of the ONNX nodes
  Cost cost;
};

struct GraphView {
  std::string name;
  std::vector<std::string> arguments; ///< "ids: i32[batch, 1]"
  std::vector<NodeView> nodes;
};

GraphView viewOf(const Function &function);

/// `count` stretches of `period` nodes from `first` on that look alike: the layers. Attributes
/// called `layer`, inputs and names may differ. A count of 1 means that nothing repeats.
struct Repeat {
  size_t first = 0, period = 0, count = 1;
  /// The node of the first stretch that `node` looks like; `node` itself outside of them.
  size_t representative(size_t node) const;
};

/// Of all repeats the one that covers most nodes, with the shortest period.
Repeat findRepeat(const GraphView &graph);

} // namespace gpt2c

#include "frontend/Graph.h"
#include "ir/Error.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

#include <queue>

namespace gpt2c {

std::string nodeName(const onnx::NodeProto &node) {
  if (!node.name().empty())
    return node.name();
  return node.op_type() + ":" + (node.output_size() ? node.output(0) : "");
}

std::string describeNode(const onnx::NodeProto &node) {
  return "node '" + nodeName(node) + "' (" + node.op_type() + ")";
}

llvm::StringRef canonicalDomain(llvm::StringRef domain) {
  return domain == "ai.onnx" ? llvm::StringRef() : domain;
}

static void forEachCapture(const onnx::GraphProto &graph,
                           llvm::function_ref<void(llvm::StringRef)> f) {
  llvm::StringSet<> local;
  for (const auto &v : graph.input())
    local.insert(v.name());
  for (const auto &t : graph.initializer())
    local.insert(t.name());
  for (const auto &n : graph.node())
    for (const std::string &o : n.output())
      local.insert(o);
  auto outer = [&](llvm::StringRef name) {
    if (!local.contains(name))
      f(name);
  };
  for (const auto &n : graph.node())
    forEachRead(n, outer);
  for (const auto &v : graph.output())
    outer(v.name());
}

void forEachRead(const onnx::NodeProto &node, llvm::function_ref<void(llvm::StringRef)> f) {
  for (const std::string &name : node.input())
    if (!name.empty())
      f(name);
  for (const auto &a : node.attribute()) {
    if (a.has_g())
      forEachCapture(a.g(), f);
    for (const auto &g : a.graphs())
      forEachCapture(g, f);
  }
}

namespace {

class Orderer {
public:
  explicit Orderer(const google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes)
      : nodes_(nodes) {}

  llvm::Expected<OrderedNodes> run(llvm::function_ref<bool(llvm::StringRef)> isDefined,
                                   const std::vector<std::string> &outputs) {
    std::vector<std::string> redefined;
    for (int i = 0; i < nodes_.size(); ++i)
      for (const std::string &o : nodes_[i].output()) {
        if (o.empty())
          continue;
        if (isDefined(o))
          return invalid("tensor '" + o + "', written by " + describeNode(nodes_[i]) +
                         ", is also an input, an initializer or a tensor of the enclosing graph");
        auto [it, inserted] = producer_.try_emplace(o, i);
        if (inserted)
          continue;
        if (isConstant(nodes_[it->second]) && isConstant(nodes_[i])) {
          it->second = i;
          redefined.push_back(o);
        } else
          return invalid("tensor '" + o + "' is written twice, by " +
                         describeNode(nodes_[it->second]) + " and by " + describeNode(nodes_[i]));
      }

    std::vector<llvm::SmallVector<int, 2>> users(nodes_.size());
    std::vector<int> waiting(nodes_.size());
    llvm::Error error = llvm::Error::success();
    for (int i = 0; i < nodes_.size(); ++i)
      forEachRead(nodes_[i], [&](llvm::StringRef name) {
        if (auto it = producer_.find(name); it != producer_.end()) {
          users[it->second].push_back(i);
          ++waiting[i];
        } else if (!isDefined(name)) {
          error = llvm::joinErrors(std::move(error),
                                   invalid(describeNode(nodes_[i]) + " reads tensor '" + name +
                                           "', which nothing in the model defines"));
        }
      });
    for (const std::string &o : outputs)
      if (!producer_.count(o) && !isDefined(o))
        error = llvm::joinErrors(std::move(error),
                                 invalid("output '" + o + "' is defined by nothing in the model"));
    if (error)
      return error;

    // Kahn's algorithm; of the nodes that are ready the first in the file comes first.
    std::vector<int> sorted;
    std::priority_queue<int, std::vector<int>, std::greater<>> ready;
    for (int i = 0; i < nodes_.size(); ++i)
      if (waiting[i] == 0)
        ready.push(i);
    while (!ready.empty()) {
      int i = ready.top();
      ready.pop();
      sorted.push_back(i);
      for (int u : users[i])
        if (--waiting[u] == 0)
          ready.push(u);
    }
    if (static_cast<int>(sorted.size()) != nodes_.size())
      return cycle(waiting);

    OrderedNodes result;
    result.redefined = std::move(redefined);
    for (const std::string &o : outputs)
      result.read.insert(o);
    std::vector<const onnx::NodeProto *> live;
    for (int i : llvm::reverse(sorted)) {
      if (llvm::none_of(nodes_[i].output(), [&](const std::string &o) {
            return result.read.contains(o) && producer_.lookup(o) == i;
          }))
        continue;
      live.push_back(&nodes_[i]);
      forEachRead(nodes_[i], [&](llvm::StringRef name) { result.read.insert(name); });
    }
    result.nodes.assign(live.rbegin(), live.rend());
    return result;
  }

private:
  static bool isConstant(const onnx::NodeProto &node) {
    return node.op_type() == "Constant" && canonicalDomain(node.domain()).empty();
  }

  static llvm::Error invalid(const llvm::Twine &message) {
    return makeError(ExitCode::InvalidModel, message);
  }

  /// Nodes that still wait read from nodes that wait: going back along such reads ends on a cycle.
  llvm::Error cycle(const std::vector<int> &waiting) {
    int i = llvm::find_if(waiting, [](int w) { return w > 0; }) - waiting.begin();
    std::vector<int> path;
    while (!llvm::is_contained(path, i)) {
      path.push_back(i);
      int next = i;
      forEachRead(nodes_[i], [&](llvm::StringRef name) {
        if (auto it = producer_.find(name); it != producer_.end() && waiting[it->second] > 0)
          next = it->second;
      });
      i = next;
    }
    path.erase(path.begin(), llvm::find(path, i));
    constexpr size_t most = 8;
    std::string names;
    for (size_t k = 0; k < std::min(path.size(), most); ++k)
      names += (k ? ", which reads from " : "") + describeNode(nodes_[path[k]]);
    if (path.size() > most)
      names += ", and so on through " + std::to_string(path.size() - most) + " more";
    return invalid("the graph has a cycle: " + names + ", which reads from " +
                   describeNode(nodes_[path[0]]));
  }

  const google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes_;
  llvm::StringMap<int> producer_;
};

} // namespace

llvm::Expected<OrderedNodes>
orderNodes(const google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes,
           llvm::function_ref<bool(llvm::StringRef)> isDefined,
           const std::vector<std::string> &outputs) {
  return Orderer(nodes).run(isDefined, outputs);
}

} // namespace gpt2c

#include "tools/common/report/Dot.h"

#include "tools/common/report/GraphView.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

namespace {

/// A string of the DOT language. Names come from a model and may hold anything.
std::string quoted(llvm::StringRef text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

/// The label of a box, its lines to the left.
std::string label(llvm::ArrayRef<std::string> lines) {
  std::string out = "\"";
  for (const std::string &line : lines)
    out += llvm::StringRef(quoted(line)).drop_front().drop_back().str() + "\\l";
  return out + "\"";
}

class DotWriter {
public:
  explicit DotWriter(llvm::raw_ostream &os) : os_(os) {}

  void write(const GraphView &graph) {
    prefix_ = "f" + std::to_string(count_++) + "_";
    os_ << "  subgraph cluster_" << prefix_ << " {\n    label = " << quoted("@" + graph.name)
        << ";\n";
    for (auto [i, argument] : llvm::enumerate(graph.arguments))
      os_ << "    " << name(-1 - int(i)) << " [shape = ellipse, label = " << quoted(argument)
          << "];\n";
    for (auto [i, node] : llvm::enumerate(graph.nodes))
      write(node, name(int(i)));
    os_ << "  }\n";
  }

private:
  /// As NodeView::inputs counts.
  std::string name(int node) const {
    return prefix_ + (node < 0 ? "in" + std::to_string(-1 - node) : std::to_string(node));
  }

  void write(const NodeView &node, const std::string &name) {
    std::vector<std::string> lines{node.title};
    llvm::append_range(lines, node.attributes);
    llvm::append_range(lines, node.constants);
    for (const std::string &type : node.types)
      lines.push_back("-> " + type);
    bool cluster = node.from.size() > 1;
    if (node.from.size() == 1)
      lines.push_back("from " + node.from[0]);
    std::string indent(cluster ? 6 : 4, ' ');
    if (cluster)
      os_ << "    subgraph cluster_" << name
          << " {\n      label = " << quoted(std::to_string(node.from.size()) + " nodes")
          << "; style = \"rounded,filled\"; fillcolor = \"#eef2f7\";\n";
    os_ << indent << name << " [label = " << label(lines) << "];\n";
    if (cluster) {
      writeNames(node.from, name, indent);
      os_ << "    }\n";
    }
    for (int input : node.inputs)
      os_ << "    " << this->name(input) << " -> " << name << ";\n";
  }

  /// The names of the ONNX nodes in a box beside the op's.
  void writeNames(llvm::ArrayRef<std::string> nodes, const std::string &name,
                  llvm::StringRef indent) {
    constexpr size_t shown = 12;
    std::vector<std::string> lines = nodes.take_front(shown).vec();
    if (nodes.size() > shown)
      lines.push_back("and " + std::to_string(nodes.size() - shown) + " more");
    os_ << indent << name
        << "_from [shape = note, fontsize = 8, color = \"#8a94a3\", label = " << label(lines)
        << "];\n"
        << indent << name << "_from -> " << name
        << " [style = dotted, arrowhead = none, constraint = false];\n";
  }

  llvm::raw_ostream &os_;
  std::string prefix_;
  unsigned count_ = 0;
};

} // namespace

void writeDot(const Module &module, llvm::ArrayRef<std::string> functions, llvm::raw_ostream &os) {
  os << "digraph " << quoted(module.name)
     << " {\n  fontname = \"Helvetica\";\n"
        "  node [shape = box, fontname = \"Helvetica\", fontsize = 10];\n"
        "  edge [color = \"#5b6676\"];\n";
  DotWriter writer(os);
  for (auto &function : module.functions)
    if (functions.empty() || llvm::is_contained(functions, function->name()))
      writer.write(viewOf(*function));
  os << "}\n";
}

} // namespace gpt2c

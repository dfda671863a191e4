#include "tools/common/Dot.h"

#include "ir/Text.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

std::string opTitle(const Op &op) {
  std::string out = op.info().mnemonic.str();
  for (auto [i, spec] : llvm::enumerate(op.info().operands))
    if (spec.kind == OperandSpec::Optional && op.operand(i))
      out += " + " + spec.name.str();
  return out;
}

std::vector<std::string> opAttributes(const Op &op) {
  std::vector<std::string> out;
  for (const NamedAttr &a : op.givenAttrs()) {
    const AttrSpec *spec = op.info().attr(a.name);
    if (spec && spec->defaultValue && *spec->defaultValue == a.value)
      continue;
    const std::string *text = std::get_if<std::string>(&a.value);
    out.push_back(a.name.str() + " = " + (text ? *text : attrText(a.value)));
  }
  return out;
}

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

  void write(const Function &function) {
    prefix_ = "f" + std::to_string(count_++) + "_";
    names_.clear();
    os_ << "  subgraph cluster_" << prefix_ << " {\n    label = " << quoted("@" + function.name())
        << ";\n";
    for (unsigned i = 0; i < function.numArguments(); ++i) {
      const Value *a = function.argument(i);
      std::string name = prefix_ + "in" + std::to_string(i);
      names_[a] = name;
      os_ << "    " << name
          << " [shape = ellipse, label = " << quoted(a->name + ": " + a->type.str()) << "];\n";
    }
    for (auto [i, op] : llvm::enumerate(function.ops()))
      if (!op->is(OpCode::Constant))
        write(*op, prefix_ + std::to_string(i));
    os_ << "  }\n";
  }

private:
  void write(const Op &op, const std::string &name) {
    std::vector<std::string> lines{opTitle(op)};
    llvm::append_range(lines, opAttributes(op));
    for (auto [i, v] : llvm::enumerate(op.operands()))
      if (v && v->def() && v->def()->is(OpCode::Constant)) {
        size_t named = std::min(i, op.info().operands.size() - 1);
        lines.push_back(op.info().operands[named].name.str() + ": " + v->type.str());
      }
    for (const Value *r : op.results()) {
      lines.push_back("-> " + r->type.str());
      names_[r] = name;
    }
    bool cluster = op.locations.size() > 1;
    if (op.locations.size() == 1)
      lines.push_back("from " + op.locations[0].str());
    std::string indent(cluster ? 6 : 4, ' ');
    if (cluster)
      os_ << "    subgraph cluster_" << name
          << " {\n      label = " << quoted(std::to_string(op.locations.size()) + " nodes")
          << "; style = \"rounded,filled\"; fillcolor = \"#eef2f7\";\n";
    os_ << indent << name << " [label = " << label(lines) << "];\n";
    if (cluster) {
      writeNodes(op.locations, name, indent);
      os_ << "    }\n";
    }
    for (const Value *v : op.operands())
      if (v && names_.count(v))
        os_ << "    " << names_[v] << " -> " << name << ";\n";
  }

  /// The names of the ONNX nodes in a box beside the op's.
  void writeNodes(llvm::ArrayRef<llvm::StringRef> nodes, const std::string &name,
                  llvm::StringRef indent) {
    constexpr size_t shown = 12;
    std::vector<std::string> lines;
    for (llvm::StringRef node : nodes.take_front(shown))
      lines.push_back(node.str());
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
  llvm::DenseMap<const Value *, std::string> names_;
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
      writer.write(*function);
  os << "}\n";
}

} // namespace gpt2c

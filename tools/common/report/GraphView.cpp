#include "tools/common/report/GraphView.h"

#include "ir/Text.h"
#include "ir/ops/Common.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

static std::string titleOf(const Op &op) {
  std::string out = op.info().mnemonic.str();
  for (auto [i, spec] : llvm::enumerate(op.info().operands))
    if (spec.kind == OperandSpec::Optional && op.operand(i))
      out += " + " + spec.name.str();
  return out;
}

static std::vector<std::string> attributesOf(const Op &op) {
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

GraphView viewOf(const Function &function) {
  GraphView out{.name = function.name(), .arguments = {}, .nodes = {}};
  llvm::DenseMap<const Value *, int> places;
  for (unsigned i = 0; i < function.numArguments(); ++i) {
    const Value *a = function.argument(i);
    out.arguments.push_back(a->name + ": " + a->type.str());
    places[a] = -1 - int(i);
  }
  for (auto &op : function.ops()) {
    if (op->is(OpCode::Constant))
      continue;
    NodeView node;
    node.title = titleOf(*op);
    node.attributes = attributesOf(*op);
    for (auto [i, v] : llvm::enumerate(op->operands())) {
      if (!v)
        continue;
      if (v->def() && v->def()->is(OpCode::Constant)) {
        llvm::ArrayRef<OperandSpec> specs = op->info().operands;
        std::string name = specs[std::min(i, specs.size() - 1)].name.str();
        node.constants.push_back(name + ": " + v->type.str());
      } else if (auto it = places.find(v);
                 it != places.end() && !llvm::is_contained(node.inputs, it->second)) {
        node.inputs.push_back(it->second);
      }
    }
    for (Value *r : op->results()) {
      node.types.push_back(r->type.str());
      places[r] = int(out.nodes.size());
    }
    for (llvm::StringRef name : op->locations)
      node.from.push_back(name.str());
    if (!op->info().has(Terminator))
      node.cost = op->info().cost ? op->info().cost(*op) : Cost{Dim(0), ioBytes(*op)};
    out.nodes.push_back(std::move(node));
  }
  return out;
}

size_t Repeat::representative(size_t node) const {
  bool inside = node >= first && node < first + period * count;
  return inside ? first + (node - first) % period : node;
}

Repeat findRepeat(const GraphView &graph) {
  // What has to be equal, as numbers.
  llvm::StringMap<size_t> numbers;
  std::vector<size_t> looks;
  for (const NodeView &node : graph.nodes) {
    std::string text = node.title;
    for (const std::string &a : node.attributes)
      if (!llvm::StringRef(a).starts_with("layer = "))
        text += "\n" + a;
    for (const auto *list : {&node.constants, &node.types})
      for (const std::string &line : *list)
        text += "\n" + line;
    looks.push_back(numbers.try_emplace(text, numbers.size()).first->second);
  }
  Repeat best;
  size_t n = looks.size();
  for (size_t period = 1; 2 * period <= n; ++period)
    for (size_t i = 0; i + period < n; ++i) {
      size_t first = i;
      while (i + period < n && looks[i] == looks[i + period])
        ++i;
      size_t count = (i - first) / period + 1;
      if (count > 1 && count * period > (best.count > 1 ? best.count * best.period : 0))
        best = {first, period, count};
    }
  return best;
}

} // namespace gpt2c

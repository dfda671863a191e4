#include "frontend/Importer.h"
#include "frontend/DeclaredSizes.h"
#include "frontend/Graph.h"
#include "frontend/NodeLowering.h"
#include "frontend/OpSchemas.h"
#include "frontend/OpTable.h"
#include "frontend/files/DecodeTensor.h"
#include "ir/Budget.h"
#include "ir/Error.h"
#include "ir/Infer.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

static llvm::Error invalid(const llvm::Twine &message) {
  return makeError(ExitCode::InvalidModel, message);
}

bool Importer::Scope::defines(llvm::StringRef name) const {
  return values.contains(name) || initializers.contains(name) || (parent && parent->defines(name));
}

const onnx::TensorProto *Importer::Scope::ofSteps(llvm::StringRef name) const {
  auto it = initializers.find(name);
  if (it != initializers.end())
    return isOfSteps(it->second->data_type()) ? it->second : nullptr;
  return parent ? parent->ofSteps(name) : nullptr;
}

template <typename OpsetImports>
static llvm::StringMap<int64_t> readOpsets(const OpsetImports &imports) {
  llvm::StringMap<int64_t> opsets;
  for (const auto &o : imports)
    opsets[canonicalDomain(o.domain())] = o.version();
  return opsets;
}

llvm::Expected<std::unique_ptr<Module>> Importer::run() {
  const onnx::GraphProto &graph = model_->graph();
  constexpr int64_t oldestIr = 3, newestIr = 32; // opsets came with 3; 13 is that of 2026
  if (model_->ir_version() < oldestIr || model_->ir_version() > newestIr)
    return invalid("the model's ir_version is " + llvm::Twine(model_->ir_version()) +
                   ", which is no version of ONNX with opsets");
  auto module = std::make_unique<Module>();
  module->name = graph.name();
  Opsets opsets = readOpsets(model_->opset_import());
  auto property = [&](llvm::StringRef key, std::string value) {
    if (!value.empty())
      module->properties.push_back({key.str(), std::move(value)});
  };
  property("producer", model_->producer_name());
  property("producer_version", model_->producer_version());
  if (opsets.count(""))
    property("opset", std::to_string(opsets[""]));

  main_ = module->addFunction("main");
  Scope scope;
  scope.opsets = &opsets;
  if (llvm::Error e = addInitializers(graph, scope))
    return e;
  if (llvm::Error e = addInputs(graph, scope))
    return e;
  std::vector<std::string> outputs;
  for (const auto &o : graph.output())
    outputs.push_back(o.name());
  if (outputs.empty())
    return invalid("the graph has no outputs");
  DimPairs assumed;
  inferredEqualities = &assumed;
  auto results = lowerBody(graph.node(), outputs, scope);
  inferredEqualities = nullptr;
  if (!results)
    return results.takeError();
  if (!unsupported_.empty())
    return unsupported_.report();
  auto warnings = renameDeclaredSizes(*main_, assumed, symbols_);
  if (!warnings)
    return warnings.takeError();
  for (const std::string &warning : *warnings)
    warn_(warning);
  main_->resultNames = outputs;
  llvm::SmallVector<Value *> returned;
  for (auto [name, result] : llvm::zip_equal(outputs, *results)) {
    if (!result.tensor)
      return makeError(ExitCode::Unsupported,
                       "output '" + name + "' is a sequence, which is not supported");
    returned.push_back(result.tensor);
  }
  Builder(*main_).ret(returned);
  main_->eraseDeadOps();
  return module;
}

llvm::Error Importer::addInitializers(const onnx::GraphProto &graph, Scope &scope) {
  for (const onnx::TensorProto &t : graph.initializer()) {
    if (scope.parent && scope.parent->defines(t.name()))
      return invalid("initializer '" + t.name() + "' hides a tensor of the enclosing graph");
    if (!scope.initializers.try_emplace(t.name(), &t).second)
      return invalid("initializer '" + t.name() + "' appears twice");
  }
  for (const onnx::SparseTensorProto &t : graph.sparse_initializer()) {
    unsupported_.add("", "SparseTensor", scope.opsets->lookup(""),
                     "sparse initializers are not supported", t.values().name());
    scope.values[t.values().name()] = {};
  }
  return llvm::Error::success();
}

llvm::Expected<Type> Importer::inputType(const onnx::ValueInfoProto &input) {
  auto unsupported = [&](const llvm::Twine &why) {
    return makeError(ExitCode::Unsupported, "input '" + input.name() + "' " + why);
  };
  if (!input.type().has_tensor_type())
    return unsupported("is not a tensor, which is not supported");
  const auto &tensor = input.type().tensor_type();
  auto dtype = fromOnnxType(tensor.elem_type());
  if (!dtype)
    return unsupported("has elements of type " + onnxTypeName(tensor.elem_type()) +
                       ", which is not supported");
  if (!tensor.has_shape())
    return unsupported("has no shape: its rank must be known");
  Type type{*dtype, {}};
  for (const auto &d : tensor.shape().dim()) {
    if (d.has_dim_value() && d.dim_value() >= 0)
      type.shape.push_back(d.dim_value());
    else if (!d.dim_param().empty())
      type.shape.push_back(symbols_.named(d.dim_param()));
    else
      type.shape.push_back(
          symbols_.fresh(input.name() + "_dim" + std::to_string(type.shape.size())));
  }
  if (llvm::Error e = checkSize(type, "input '" + input.name() + "'"))
    return e;
  return type;
}

llvm::Error Importer::addInputs(const onnx::GraphProto &graph, Scope &scope) {
  // All given names first, so that a made-up one never takes a name that a later input uses.
  for (const auto &input : graph.input())
    for (const auto &d : input.type().tensor_type().shape().dim())
      if (!d.dim_param().empty())
        symbols_.named(d.dim_param());
  for (const auto &input : graph.input()) {
    if (scope.initializers.contains(input.name()))
      continue;
    if (scope.values.contains(input.name()))
      return invalid("input '" + input.name() + "' appears twice");
    auto type = inputType(input);
    if (!type)
      return type.takeError();
    scope.values[input.name()].tensor = main_->addArgument(std::move(*type), input.name());
  }
  return llvm::Error::success();
}

llvm::Expected<Binding> Importer::lookUp(llvm::StringRef name, Scope &scope) {
  // Names were checked before: every one is defined in some scope.
  for (const Scope *s = &scope; s; s = s->parent) {
    if (auto it = s->values.find(name); it != s->values.end())
      return it->second;
    auto it = s->initializers.find(name);
    if (it == s->initializers.end())
      continue;
    auto tensor = decodeTensor(*it->second, model_, &files_);
    if (!tensor)
      return tensor.takeError();
    Value *v = Builder(*main_).constant(pool_.share(std::move(*tensor)));
    v->name = name.str();
    return const_cast<Scope *>(s)->values[name] = Binding{v, nullptr};
  }
  return invalid("tensor '" + name + "' is not defined");
}

llvm::Expected<std::vector<Binding>>
Importer::lowerBody(const Nodes &nodes, const std::vector<std::string> &outputs, Scope &scope) {
  auto ordered =
      orderNodes(nodes, [&](llvm::StringRef name) { return scope.defines(name); }, outputs);
  if (!ordered)
    return ordered.takeError();
  if (size_t count = ordered->redefined.size())
    warn_("tensor '" + ordered->redefined[0] + "'" +
          (count > 1 ? " (and " + std::to_string(count - 1) + " more)" : "") +
          " is written by several Constant nodes; the last one in the file is taken");
  for (const onnx::NodeProto *node : ordered->nodes)
    if (llvm::Error e = lowerNode(*node, ordered->read, scope))
      return e;
  std::vector<Binding> results;
  for (const std::string &o : outputs) {
    auto v = lookUp(o, scope);
    if (!v)
      return v.takeError();
    results.push_back(*v);
  }
  return results;
}

llvm::Expected<int64_t> Importer::opsetOf(const onnx::NodeProto &node, const Scope &scope) {
  llvm::StringRef domain = canonicalDomain(node.domain());
  auto it = scope.opsets->find(domain);
  if (it == scope.opsets->end())
    return invalid(describeNode(node) + " is of domain '" + node.domain() +
                   "', of which the model imports no version");
  if (domain.empty() && (it->second < minOpset || it->second > maxOpset))
    return makeError(ExitCode::Unsupported,
                     "the model uses opset " + llvm::Twine(it->second) + "; opsets " +
                         llvm::Twine(minOpset) + " to " + llvm::Twine(maxOpset) +
                         " are supported. Export it again with one of those");
  return it->second;
}

void Importer::reject(const onnx::NodeProto &node, int64_t opset, llvm::StringRef reason,
                      Scope &scope) {
  unsupported_.add(canonicalDomain(node.domain()), node.op_type(), opset, reason,
                   scope.prefix + nodeName(node));
  for (const std::string &o : node.output())
    scope.values[o] = {};
}

llvm::Error Importer::lowerNode(const onnx::NodeProto &node, const llvm::StringSet<> &read,
                                Scope &scope) {
  constexpr unsigned mostNodes = 1 << 20;
  if (++nodesLowered_ > mostNodes)
    return invalid("the model has more than " + llvm::Twine(mostNodes) +
                   " nodes once its functions are expanded");
  if (const onnx::FunctionProto *function = functions_.find(node))
    return lowerCall(node, *function, scope);
  if (canonicalDomain(node.domain()).empty() && node.op_type() == "If")
    return lowerIf(node, scope);
  return lowerOperator(node, read, scope);
}

llvm::Error Importer::lowerOperator(const onnx::NodeProto &node, const llvm::StringSet<> &read,
                                    Scope &scope) {
  auto opset = opsetOf(node, scope);
  if (!opset)
    return opset.takeError();
  llvm::StringRef domain = canonicalDomain(node.domain());
  OpLookup found = lookUpOp(domain, node.op_type(), *opset);
  if (!found.row) {
    std::string reason = found.firstSince
                             ? "it exists from opset " + std::to_string(found.firstSince) + " on"
                         : isKnownDomain(domain) ? "operator not supported"
                                                 : "domain not supported";
    reject(node, *opset, reason, scope);
    return llvm::Error::success();
  }

  if (auto mismatch = schemaMismatch(domain, node, *opset))
    return invalid(describeNode(node) + " " + *mismatch);
  llvm::SmallVector<Binding, 8> inputs;
  for (const std::string &name : node.input()) {
    if (name.empty()) {
      inputs.push_back({});
      continue;
    }
    const onnx::TensorProto *steps = scope.ofSteps(name);
    if (steps && node.op_type() != "DequantizeLinear" && node.op_type() != "GatherBlockQuantized") {
      reject(node, *opset,
             "tensor '" + name + "' has elements of type " + onnxTypeName(steps->data_type()) +
                 ", which DequantizeLinear alone may read",
             scope);
      return llvm::Error::success();
    }
    auto v = lookUp(name, scope);
    if (!v) {
      // An initializer of a type the IR lacks is one more thing to list; damaged data is the end.
      std::string reason;
      if (llvm::Error e =
              llvm::handleErrors(v.takeError(), [&](std::unique_ptr<CodedError> e) -> llvm::Error {
                if (e->code() != ExitCode::Unsupported)
                  return llvm::Error(std::move(e));
                reason = e->message();
                return llvm::Error::success();
              }))
        return e;
      reject(node, *opset, reason, scope);
      return llvm::Error::success();
    }
    if (!*v) { // already reported
      for (const std::string &o : node.output())
        scope.values[o] = {};
      return llvm::Error::success();
    }
    inputs.push_back(*v);
  }

  std::vector<bool> wanted;
  for (const std::string &o : node.output())
    wanted.push_back(!o.empty() && read.contains(o));
  Builder builder(*main_);
  builder.setLocations({intern(scope.prefix + nodeName(node))});
  NodeLowering lowering(builder, node, *opset, inputs, std::move(wanted), files_);
  found.row->build(lowering);
  if (llvm::Error e = lowering.takeError())
    return e;
  if (lowering.unsupportedReason()) {
    reject(node, *opset, *lowering.unsupportedReason(), scope);
    return llvm::Error::success();
  }
  for (int i = 0; i < node.output_size(); ++i) {
    Binding result = lowering.outputs()[i];
    if (lowering.wants(i) && !result)
      return invalid(describeNode(node) + " has no output number " + llvm::Twine(i));
    if (node.output(i).empty())
      continue;
    if (Value *v = result.tensor; v && v->name == node.output(i) && !scope.prefix.empty())
      v->name = scope.prefix + v->name; // each expansion of a function has its own
    scope.values[node.output(i)] = result;
  }
  return llvm::Error::success();
}

llvm::Error Importer::setOutputs(const onnx::NodeProto &node, llvm::ArrayRef<Binding> values,
                                 Scope &scope) {
  if (node.output_size() > static_cast<int>(values.size()))
    return invalid(describeNode(node) + " has " + llvm::Twine(node.output_size()) +
                   " outputs, but its body gives " + llvm::Twine(values.size()));
  for (int i = 0; i < node.output_size(); ++i)
    if (!node.output(i).empty())
      scope.values[node.output(i)] = values[i];
  return llvm::Error::success();
}

llvm::Error Importer::lowerCall(const onnx::NodeProto &node, const onnx::FunctionProto &function,
                                Scope &scope) {
  constexpr size_t deepest = 64;
  if (llvm::is_contained(callStack_, &function))
    return invalid("function '" + function.name() + "' calls itself, through " +
                   describeNode(node));
  if (callStack_.size() >= deepest)
    return invalid("functions call each other more than " + llvm::Twine(deepest) + " levels deep");
  if (node.input_size() > function.input_size())
    return invalid(describeNode(node) + " passes " + llvm::Twine(node.input_size()) +
                   " inputs to a function of " + llvm::Twine(function.input_size()));
  auto body = instantiate(function, node);
  Opsets opsets = readOpsets(body->opset_import());
  Scope inner;
  inner.opsets = &opsets;
  inner.prefix = scope.prefix + nodeName(node) + "/";
  llvm::StringSet<> absent;
  for (int i = 0; i < body->input_size(); ++i) {
    if (i >= node.input_size() || node.input(i).empty()) {
      absent.insert(body->input(i));
      continue;
    }
    auto v = lookUp(node.input(i), scope);
    if (!v)
      return v.takeError();
    inner.values[body->input(i)] = *v;
  }
  // An optional input that the call leaves out is left out where the body passes it on.
  for (onnx::NodeProto &n : *body->mutable_node())
    for (std::string &input : *n.mutable_input())
      if (absent.contains(input))
        input.clear();
  callStack_.push_back(&function);
  auto results = lowerBody(body->node(), {body->output().begin(), body->output().end()}, inner);
  callStack_.pop_back();
  if (!results)
    return results.takeError();
  return setOutputs(node, *results, scope);
}

llvm::Error Importer::lowerIf(const onnx::NodeProto &node, Scope &scope) {
  auto opset = opsetOf(node, scope);
  if (!opset)
    return opset.takeError();
  if (node.input_size() != 1)
    return invalid(describeNode(node) + " must have one input");
  auto condition = lookUp(node.input(0), scope);
  if (!condition)
    return condition.takeError();
  if (!*condition) { // already reported
    for (const std::string &o : node.output())
      scope.values[o] = {};
    return llvm::Error::success();
  }
  auto known = NodeLowering::constants(condition->tensor);
  if (!known || known->size() != 1) {
    const Value *asked = condition->tensor;
    while (asked->def() && asked->def()->numOperands() == 1)
      asked = asked->def()->operand(0);
    reject(node, *opset,
           "the condition is not a constant; where two models were merged into one, export them "
           "separately" +
               (asked->def() ? "" : ", or take one: gpt2c --set-input=" + asked->name + "=1, or 0"),
           scope);
    return llvm::Error::success();
  }
  llvm::StringRef wanted = known->front() ? "then_branch" : "else_branch";
  auto branch =
      llvm::find_if(node.attribute(), [&](auto &a) { return a.name() == wanted && a.has_g(); });
  if (branch == node.attribute().end())
    return invalid(describeNode(node) + " has no " + wanted);
  Scope inner;
  inner.parent = &scope;
  inner.opsets = scope.opsets;
  inner.prefix = scope.prefix;
  if (llvm::Error e = addInitializers(branch->g(), inner))
    return e;
  std::vector<std::string> outputs;
  for (const auto &o : branch->g().output())
    outputs.push_back(o.name());
  auto results = lowerBody(branch->g().node(), outputs, inner);
  if (!results)
    return results.takeError();
  return setOutputs(node, *results, scope);
}

} // namespace gpt2c

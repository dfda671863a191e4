#include "runtime/device/FunctionCall.h"

#include "runtime/device/HostTensor.h"
#include "runtime/plan/Expr.h"
#include "runtime/plan/KvLayout.h"

#include <optional>
#include <string>

namespace gpt2c::rt {
namespace {

/// Finds the symbols' values by unifying the ports' shapes with concrete ones.
class Binder {
public:
  explicit Binder(const plan::FunctionT &function)
      : function_(function), values_(function.symbols.size()) {}

  Status unify(const plan::PortT &port, std::span<const int64_t> shape) {
    if (shape.size() != port.shape.size())
      return Status(Code::Usage, "'" + port.name + "' has rank " + std::to_string(shape.size()) +
                                     ", the plan takes rank " + std::to_string(port.shape.size()));
    for (size_t i = 0; i < shape.size(); ++i)
      if (Status s = unify(port, i, shape[i]); !s.ok())
        return s;
    return {};
  }

  /// Every symbol's value; those that are still unknown take `unknown`.
  Result<std::vector<int64_t>> finish(int64_t unknown) {
    std::vector<int64_t> out;
    for (size_t i = 0; i < values_.size(); ++i) {
      const plan::SymbolT &symbol = *function_.symbols[i];
      out.push_back(values_[i].value_or(unknown));
      if (out.back() < symbol.min || out.back() > symbol.max)
        return Status(Code::Usage, "'" + symbol.name + "' is " + std::to_string(out.back()) +
                                       ", the plan takes " + std::to_string(symbol.min) + " to " +
                                       std::to_string(symbol.max));
    }
    for (const auto &limit : function_.limits) {
      Result<int64_t> sum = evalExpr(*limit->sum, out);
      if (!sum)
        return sum.status();
      if (*sum > limit->most)
        return Status(Code::Usage, "a sum is " + std::to_string(*sum) + text(*limit->sum) +
                                       ", the plan takes at most " + std::to_string(limit->most));
    }
    return out;
  }

private:
  /// The only unknown symbol in `expr`; nothing when there is none, -1 when there are several.
  std::optional<int> unknownIn(const plan::ExprT &expr) const {
    std::optional<int> found;
    for (size_t i = 0; i + 1 < expr.code.size(); i += 2) {
      if (expr.code[i] != int64_t(ExprOp::Symbol) || values_[expr.code[i + 1]])
        continue;
      int symbol = static_cast<int>(expr.code[i + 1]);
      found = !found || *found == symbol ? symbol : -1;
    }
    return found;
  }

  /// Whether one unknown symbol can be solved for: no minimum, maximum or quotient hides it.
  static bool isSum(const plan::ExprT &expr) {
    for (size_t i = 0; i + 1 < expr.code.size(); i += 2)
      if (expr.code[i] >= int64_t(ExprOp::CeilDiv))
        return false;
    return true;
  }

  Result<int64_t> evaluate(const plan::ExprT &expr, int unknown, int64_t value) const {
    std::vector<int64_t> symbols;
    for (size_t i = 0; i < values_.size(); ++i)
      symbols.push_back(int(i) == unknown ? value : values_[i].value_or(0));
    return evalExpr(expr, symbols);
  }

  Status unify(const plan::PortT &port, size_t axis, int64_t size) {
    const plan::ExprT &expr = *port.shape[axis];
    std::optional<int> unknown = unknownIn(expr);
    if (unknown == -1 || (unknown && !isSum(expr)))
      return {}; // another port or axis determines these symbols
    int64_t value = 0;
    if (unknown) { // size = rest + value, as in past + seq
      Result<int64_t> rest = evaluate(expr, *unknown, 0);
      if (!rest)
        return rest.status();
      value = size - *rest;
    }
    Result<int64_t> now = evaluate(expr, unknown.value_or(-1), value);
    if (!now)
      return now.status();
    if (*now != size)
      return Status(Code::Usage, "dimension " + std::to_string(axis) + " of '" + port.name +
                                     "' is " + std::to_string(size) + ", expected " +
                                     std::to_string(*now) + text(expr));
    if (unknown)
      values_[*unknown] = value;
    return {};
  }

  std::string text(const plan::ExprT &expr) const {
    std::vector<std::string> names;
    for (const auto &symbol : function_.symbols)
      names.push_back(symbol->name);
    Result<std::string> printed = printExpr(expr, names);
    return printed ? " (" + *printed + ")" : "";
  }

  const plan::FunctionT &function_;
  std::vector<std::optional<int64_t>> values_;
};

} // namespace

static Result<std::vector<int64_t>> bindCall(const plan::KvPlanT *kv,
                                             const plan::FunctionT &function,
                                             std::span<const std::vector<int64_t>> shapes,
                                             int64_t past) {
  if (shapes.size() != function.inputs.size())
    return Status(Code::Usage, std::to_string(shapes.size()) +
                                   " inputs are given, the plan takes " +
                                   std::to_string(function.inputs.size()));
  Binder binder(function);
  // A dimension of two unknown symbols is settled in the second round.
  for (int round = 0; round < 2; ++round)
    for (size_t i = 0; i < shapes.size(); ++i) {
      const plan::PortT &port = *function.inputs[i];
      std::vector<int64_t> shape = shapes[i];
      if (kv && port.role == plan::Role::KvState) {
        if (port.shape.empty())
          continue;
        shape = {kv->layers, 2, kv->max_batch, kv->heads, kv->max_context, kvRowElements(*kv)};
      }
      if (Status s = binder.unify(port, shape); !s.ok())
        return s;
    }
  return binder.finish(past);
}

const plan::FunctionT *findFunction(Functions functions, std::string_view name) {
  for (const auto &function : functions)
    if (function->name == name)
      return function.get();
  return nullptr;
}

Result<FunctionCall> chooseFunction(Functions functions, const plan::KvPlanT *kv,
                                    std::string_view name,
                                    std::span<const std::vector<int64_t>> shapes, int64_t past) {
  // Functions of one name differ in their bounds, the widest coming last: its reason is the one to
  // tell.
  Status reason(Code::Usage, "the plan has no such function");
  for (const auto &function : functions) {
    if (function->name != name)
      continue;
    Result<std::vector<int64_t>> symbols = bindCall(kv, *function, shapes, past);
    if (symbols)
      return FunctionCall{function.get(), symbols.take()};
    reason = symbols.status();
  }
  return Status(reason.code(), "@" + std::string(name) + ": " + reason.message());
}

const std::string &portName(const plan::ExportedPortT &exported,
                            const std::vector<std::unique_ptr<plan::PortT>> &ports) {
  bool renamed = exported.role == plan::Role::Plain && exported.layer >= 0 &&
                 size_t(exported.layer) < ports.size();
  return renamed ? ports[exported.layer]->name : exported.name;
}

int64_t largestDim(const plan::FunctionT &function, const plan::ExprT &dim) {
  std::vector<Range> bounds;
  for (const auto &symbol : function.symbols)
    bounds.push_back({symbol->min, symbol->max});
  Result<Range> range = exprRange(dim, bounds);
  return range ? range->hi : 0;
}

Result<std::vector<int64_t>> portShape(const plan::PortT &port, std::span<const int64_t> symbols) {
  std::vector<int64_t> shape;
  for (const auto &expr : port.shape) {
    Result<int64_t> value = evalExpr(*expr, symbols);
    if (!value)
      return value.status();
    shape.push_back(*value);
  }
  return shape;
}

} // namespace gpt2c::rt

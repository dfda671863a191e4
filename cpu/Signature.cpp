#include "cpu/Signature.h"

#include "cpu/Convert.h"
#include "ir/Calculate.h"
#include "runtime/plan/Expr.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

#include <limits>

namespace gpt2c {

static int symbolIndex(plan::FunctionT &out, llvm::StringRef name) {
  auto it = llvm::find_if(out.symbols, [&](auto &symbol) { return symbol->name == name; });
  if (it != out.symbols.end())
    return static_cast<int>(it - out.symbols.begin());
  auto symbol = std::make_unique<plan::SymbolT>();
  symbol->name = name.str();
  symbol->max = std::numeric_limits<int64_t>::max();
  out.symbols.push_back(std::move(symbol));
  return static_cast<int>(out.symbols.size()) - 1;
}

static plan::ExprT toExpr(plan::FunctionT &out, const Dim &d) {
  return calculate(d, rt::ExprAlgebra{[&](llvm::StringRef s) { return symbolIndex(out, s); }});
}

/// The roles that the KV transform's names stand for. In a function without a KV state only the
/// first ones do: other names are those of the exported graph.
static plan::Role roleOf(llvm::StringRef name, bool cached) {
  plan::Role role = llvm::StringSwitch<plan::Role>(name)
                        .Case("ids", plan::Role::Ids)
                        .Case("key_mask", plan::Role::KeyMask)
                        .Case("position_ids", plan::Role::PositionIds)
                        .Case("logits", plan::Role::Logits)
                        .Default(plan::Role::Plain);
  if (role != plan::Role::Plain || !cached)
    return role;
  return llvm::StringSwitch<plan::Role>(name)
      .Case("past", plan::Role::Past)
      .Case("length", plan::Role::Length)
      .Case("kv", plan::Role::KvState)
      .Case("next", plan::Role::NextToken)
      .Default(plan::Role::Plain);
}

static std::unique_ptr<plan::PortT> portOf(plan::FunctionT &out, llvm::StringRef name,
                                           const Type &type, bool cached) {
  auto port = std::make_unique<plan::PortT>();
  port->name = name.str();
  port->dtype = port->exported_dtype = toPlan(type.dtype);
  port->role = roleOf(name, cached);
  for (const Dim &d : type.shape)
    port->shape.push_back(std::make_unique<plan::ExprT>(toExpr(out, d)));
  return port;
}

std::unique_ptr<plan::FunctionT> signatureOf(const Function &f) {
  auto out = std::make_unique<plan::FunctionT>();
  out->name = f.name();
  bool cached = f.argument("kv");
  for (unsigned i = 0; i < f.numArguments(); ++i) {
    const Value &a = *f.argument(i);
    out->inputs.push_back(portOf(*out, a.name, a.type, cached));
  }
  for (auto [i, v] : llvm::enumerate(f.returned()))
    out->outputs.push_back(
        portOf(*out, i < f.resultNames.size() ? f.resultNames[i] : "", v->type, cached));
  return out;
}

} // namespace gpt2c

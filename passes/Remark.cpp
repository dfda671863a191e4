#include "passes/Remark.h"

#include "ir/FunctionNames.h"
#include "ir/ops/Common.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Format.h"

namespace gpt2c {

Remark &Remark::stoppedBy(const Obstacle &obstacle) {
  op = obstacle.op ? obstacle.op->info().mnemonic.str() : "";
  attribute = obstacle.attribute;
  return *this;
}

std::string shortNumber(double x) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%g", x);
  return text;
}

bool isLaunched(const Op &op) {
  switch (op.code()) {
  case OpCode::Constant:
  case OpCode::DimValues:
  case OpCode::Shape:
  case OpCode::Reshape:
  case OpCode::Squeeze:
  case OpCode::Unsqueeze:
  case OpCode::Return:
    return false;
  default:
    return true;
  }
}

Dim leastBytes(const Op &op) { return op.info().cost ? op.info().cost(op).bytes : ioBytes(op); }

Dim inStepSymbols(const Dim &d, const Function &f) {
  Dim out = d;
  llvm::StringSet<> named;
  auto name = [&](const Value *v, unsigned axis, llvm::StringRef as) {
    auto symbol = v->type.shape[axis].asSymbol();
    if (symbol && named.insert(*symbol).second)
      out = out.substitute(*symbol, Dim::symbol(as));
  };
  for (unsigned i = 0; i < f.numArguments(); ++i) {
    const Value *v = f.argument(i);
    if (v->type.rank() == 2 && isInteger(v->type.dtype) && named.empty()) {
      name(v, 0, "batch");
      name(v, 1, "seq");
    } else if (v->type.rank() == 4 || v->type.rank() == 5) {
      name(v, v->type.rank() - 2, "past");
    }
  }
  return out;
}

Remark &Remark::costing(llvm::ArrayRef<Op *> ops) {
  int64_t launched = 0;
  Dim separate, fused;
  llvm::SmallVector<const Value *> read;
  for (const Op *op : ops) {
    if (!isLaunched(*op))
      continue;
    apart.append(op->locations.begin(), op->locations.end());
    ++launched;
    separate = separate + leastBytes(*op);
    for (const Value *v : op->operands())
      if (v && !llvm::is_contained(ops, v->def()) && !llvm::is_contained(read, v)) {
        read.push_back(v);
        fused = fused + storedBytes(v->type);
      }
    bool leaves = llvm::any_of(op->results(), [&](const Value *r) {
      return llvm::any_of(r->uses(), [&](const Use &u) { return !llvm::is_contained(ops, u.op); });
    });
    if (leaves)
      for (const Value *r : op->results())
        fused = fused + storedBytes(r->type);
  }
  launches = std::max<int64_t>(0, launched - 1);
  bytes = ops.empty() ? Dim() : inStepSymbols(separate - fused, *ops.front()->function());
  return *this;
}

/// Rows of the smallest table that a graph reads rows of, which are its positions; 0 without one.
static int64_t fewestRows(const Module &module) {
  int64_t rows = 0;
  for (auto &f : module.functions)
    for (auto &op : f->ops()) {
      const Value *table = op->is(OpCode::Gather) ? op->operand(ops::Gather::X) : nullptr;
      if (!table || !table->def() || !table->def()->is(OpCode::Constant) ||
          table->type.rank() != 2 || !isFloat(table->type.dtype))
        continue;
      int64_t n = table->type.shape[0].constant().value_or(0);
      rows = rows ? std::min(rows, n) : n;
    }
  return rows;
}

StepSizes StepSizes::of(const Module &module, int64_t maxContext) {
  int64_t rows = fewestRows(module), context = maxContext ? maxContext : rows ? rows : 1024;
  for (auto &f : module.functions)
    if (const Value *kv = f->argument("kv"); kv && kv->type.rank() == 6)
      context = kv->type.shape[4].constant().value_or(context);
  if (module.function(functions::decode))
    return {1, context - 1};
  return {context, 0};
}

int64_t bytesAt(const Dim &d, const StepSizes &sizes) {
  SymbolMap symbols;
  d.forEachSymbol([&](llvm::StringRef s) {
    symbols[s] = s == "batch"  ? 1
                 : s == "seq"  ? sizes.seq
                 : s == "past" ? sizes.past
                               : sizes.past + sizes.seq;
  });
  return d.evaluate(symbols).value_or(0);
}

} // namespace gpt2c

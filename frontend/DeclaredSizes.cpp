#include "frontend/DeclaredSizes.h"

#include "ir/Infer.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// Pairs that are equal only where a size is 0, as seq and past + seq.
static size_t contradictions(const DimPairs &pairs) {
  return size_t(llvm::count_if(pairs, [](const auto &pair) {
    const Dim difference = pair.first - pair.second;
    if (difference.isConstant() || !difference.isPolynomial() || pair.first.isConstant() ||
        pair.second.isConstant())
      return false;
    const auto terms = difference.terms();
    return llvm::all_of(terms, [](const Dim::Term &t) { return t.coefficient > 0; }) ||
           llvm::all_of(terms, [](const Dim::Term &t) { return t.coefficient < 0; });
  }));
}

/// Whether `v`, cast or shaped as it may be, chooses rows of a table, as ids and positions do.
static bool choosesRows(const Value *v) {
  return llvm::any_of(v->uses(), [](const Use &u) {
    switch (u.op->code()) {
    case OpCode::Gather:
      return u.operand == ops::Gather::Indices && isFloat(u.op->result()->type.dtype);
    case OpCode::Cast:
    case OpCode::Reshape:
    case OpCode::Unsqueeze:
    case OpCode::Squeeze:
      return u.operand == 0 && choosesRows(u.op->result());
    default:
      return false;
    }
  });
}

static bool isNamedElsewhere(const Function &f, const Value *except, const Dim &size) {
  for (unsigned i = 0; i < f.numArguments(); ++i)
    if (f.argument(i) != except && llvm::is_contained(f.argument(i)->type.shape, size))
      return true;
  return false;
}

static llvm::Expected<size_t> contradictionsIn(Function &f) {
  DimPairs pairs;
  DimPairs *outer = std::exchange(inferredEqualities, &pairs);
  llvm::Error e = f.inferTypes();
  inferredEqualities = outer;
  if (e)
    return e;
  return contradictions(pairs);
}

llvm::Expected<std::vector<std::string>> renameDeclaredSizes(Function &f, const DimPairs &assumed,
                                                             Symbols &symbols) {
  std::vector<std::string> warnings;
  size_t left = contradictions(assumed);
  for (unsigned i = 0; left > 0 && i < f.numArguments(); ++i) {
    Value *v = f.argument(i);
    if (v->type.rank() != 2 || !v->type.shape[1].asSymbol() ||
        !isNamedElsewhere(f, v, v->type.shape[1]) || choosesRows(v))
      continue;
    const Type declared = v->type;
    v->type.shape[1] = symbols.fresh(v->name + "_dim1");
    auto now = contradictionsIn(f);
    if (!now) // types are as they were inferred last where it is put back
      llvm::consumeError(now.takeError());
    if (now && *now < left) {
      left = *now;
      warnings.push_back("input '" + v->name + "' is declared " + declared.str() +
                         ", which is not what the graph does with it; '" + declared.shape[1].str() +
                         "' is not taken for its size");
      continue;
    }
    v->type = declared;
    if (auto again = contradictionsIn(f); !again)
      return again.takeError();
  }
  return warnings;
}

} // namespace gpt2c

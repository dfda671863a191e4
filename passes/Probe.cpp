#include "passes/Probe.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

namespace gpt2c {

SymbolMap probeSymbols(const Function &f, unsigned trial) {
  // In order of appearance: usually batch, sequence, past.
  static const int64_t values[][4] = {{2, 3, 4, 5}, {3, 5, 2, 4}, {1, 6, 7, 3}, {2, 1, 5, 4}};
  SymbolMap symbols;
  unsigned next = 0;
  auto add = [&](llvm::ArrayRef<Dim> dims) {
    for (const Dim &d : dims)
      for (const Dim::Term &t : d.terms())
        for (llvm::StringRef s : t.symbols)
          if (symbols.try_emplace(s, next < 4 ? values[trial % 4][next] : 2 + next).second)
            ++next;
  };
  for (unsigned i = 0; i < f.numArguments(); ++i)
    add(f.argument(i)->type.shape);
  for (auto &op : f.ops())
    for (Value *r : op->results())
      add(r->type.shape);
  return symbols;
}

std::optional<llvm::SmallVector<int64_t, 4>> concreteShape(const Type &t,
                                                           const SymbolMap &symbols) {
  llvm::SmallVector<int64_t, 4> shape;
  for (const Dim &d : t.shape) {
    auto v = d.evaluate(symbols);
    if (!v || *v < 0)
      return std::nullopt;
    shape.push_back(*v);
  }
  return shape;
}

Tensor randomTensor(llvm::ArrayRef<int64_t> shape, uint64_t seed, double scale) {
  Tensor t(DType::F64, shape);
  uint64_t state = seed * 0x9e3779b97f4a7c15ull + 0x1234567;
  for (int64_t i = 0; i < t.count(); ++i) {
    // splitmix64
    uint64_t z = state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    t.data<double>()[i] = (double(z >> 11) / double(1ull << 53) * 2 - 1) * scale;
  }
  return t;
}

Tensor iotaTensor(llvm::ArrayRef<int64_t> shape) {
  Tensor t(DType::F64, shape);
  for (int64_t i = 0; i < t.count(); ++i)
    t.data<double>()[i] = double(i + 1);
  return t;
}

bool BackwardSlice::contains(const Op *op) const { return llvm::is_contained(ops, op); }
bool BackwardSlice::hasLeaf(const Value *v) const { return llvm::is_contained(leaves, v); }

BackwardSlice backwardSlice(Value *root, llvm::function_ref<bool(Value *)> stop) {
  BackwardSlice slice;
  llvm::SetVector<Value *> seen;
  seen.insert(root);
  for (size_t i = 0; i < seen.size(); ++i) {
    Value *v = seen[i];
    if (!v->def() || (v != root && stop(v))) {
      slice.leaves.push_back(v);
      continue;
    }
    if (!llvm::is_contained(slice.ops, v->def()))
      slice.ops.push_back(v->def());
    for (Value *o : v->def()->operands())
      if (o)
        seen.insert(o);
  }
  return slice;
}

bool computedAlike(const Value *a, const Value *fromA, const Value *b, const Value *fromB) {
  llvm::DenseMap<const Value *, const Value *> partners;
  auto alike = [&](auto &self, const Value *x, const Value *y) -> bool {
    if (!x || !y)
      return x == y;
    if (x == fromA || y == fromB)
      return x == fromA && y == fromB && x->type == y->type;
    auto [it, isNew] = partners.try_emplace(x, y);
    if (!isNew)
      return it->second == y;
    const Op *p = x->def(), *q = y->def();
    if (!p || !q)
      return x == y;
    if (p->code() != q->code() || x->type != y->type || x->index() != y->index() ||
        p->numOperands() != q->numOperands() || !sameAttrs(*p, *q))
      return false;
    if (p->is(OpCode::Constant) && (!p->constant.valid() || !q->constant.valid() ||
                                    p->constant.byteArray() != q->constant.byteArray()))
      return p == q;
    return llvm::all_of(llvm::zip_equal(p->operands(), q->operands()), [&](auto pair) {
      return self(self, std::get<0>(pair), std::get<1>(pair));
    });
  };
  return alike(alike, a, b);
}

std::optional<Tensor> probe(const Function &f, Value *root, Executor::Bindings bound,
                            const SymbolMap &symbols, std::string *why) {
  Executor executor(f, {.float64 = true});
  auto out = executor.evaluate({root}, std::move(bound), symbols);
  if (out)
    return (*out)[0];
  std::string message = llvm::toString(out.takeError());
  if (why)
    *why = message;
  return std::nullopt;
}

} // namespace gpt2c

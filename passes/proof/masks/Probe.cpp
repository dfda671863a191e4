#include "passes/proof/masks/Probe.h"

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
      d.forEachSymbol([&](llvm::StringRef s) {
        if (symbols.try_emplace(s, next < 4 ? values[trial % 4][next] : 2 + next).second)
          ++next;
      });
  };
  for (unsigned i = 0; i < f.numArguments(); ++i)
    add(f.argument(i)->type.shape);
  for (auto &op : f.ops())
    for (Value *r : op->results())
      add(r->type.shape);
  return symbols;
}

/// Most elements of one tensor of a trial, and most bytes of all values of one evaluation.
constexpr int64_t mostElements = int64_t(1) << 27, mostBytes = int64_t(1) << 32;

/// The elements of a tensor of shape `dims`; none when a dimension has no value or is negative, or
/// when there are more than fit in an int64_t.
static std::optional<int64_t> elementsUnder(llvm::ArrayRef<Dim> dims, const SymbolMap &symbols) {
  int64_t count = 1;
  for (const Dim &d : dims) {
    auto v = d.evaluate(symbols);
    if (!v || *v < 0 || __builtin_mul_overflow(count, *v, &count))
      return std::nullopt;
  }
  return count;
}

std::optional<llvm::SmallVector<int64_t, 4>> concreteShape(const Type &t,
                                                           const SymbolMap &symbols) {
  auto count = elementsUnder(t.shape, symbols);
  if (!count || *count > mostElements)
    return std::nullopt;
  llvm::SmallVector<int64_t, 4> shape;
  for (const Dim &d : t.shape)
    shape.push_back(*d.evaluate(symbols));
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

/// Whether all values between `bound` and `roots` fit in the bytes of one evaluation. Values whose
/// shapes have no value yet do not count.
static bool fitsBudget(llvm::ArrayRef<Value *> roots, const Executor::Bindings &bound,
                       const SymbolMap &symbols, bool float64) {
  llvm::SetVector<Value *> values(roots.begin(), roots.end());
  int64_t bytes = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    Value *v = values[i];
    if (bound.count(v) || !v->def())
      continue;
    for (Value *o : v->def()->operands())
      if (o)
        values.insert(o);
    bool known = true;
    for (const Dim &d : v->type.shape)
      d.forEachSymbol([&](llvm::StringRef s) { known &= symbols.contains(s); });
    if (!known)
      continue;
    auto count = elementsUnder(v->type.shape, symbols);
    const DType stored = float64 && isFloat(v->type.dtype) ? DType::F64 : v->type.dtype;
    if (!count || *count > mostBytes ||
        __builtin_add_overflow(bytes, storedBytes(stored, *count), &bytes) || bytes > mostBytes)
      return false;
  }
  return true;
}

std::optional<std::vector<Tensor>> probeAll(const Function &f, llvm::ArrayRef<Value *> roots,
                                            Executor::Bindings bound, const SymbolMap &symbols,
                                            bool float64, std::string *why) {
  auto fails = [&](std::string reason) {
    if (why)
      *why = std::move(reason);
    return std::nullopt;
  };
  if (!fitsBudget(roots, bound, symbols, float64))
    return fails("its values need more than " + std::to_string(mostBytes >> 30) + " GiB");
  Executor executor(f, {.float64 = float64});
  auto out = executor.evaluate(roots, std::move(bound), symbols);
  if (out)
    return std::move(*out);
  return fails(llvm::toString(out.takeError()));
}

std::optional<Tensor> probe(const Function &f, Value *root, Executor::Bindings bound,
                            const SymbolMap &symbols, std::string *why) {
  auto out = probeAll(f, {root}, std::move(bound), symbols, true, why);
  return out ? std::optional((*out)[0]) : std::nullopt;
}

} // namespace gpt2c

// fold-norms: gain and shift of a norm move into the products that read it,
//   (n(x) g + s) W^T + b = n(x) W'^T + b'
//   W'[n,k] = W[n,k] g[k],   b'[n] = b[n] + sum_k W[n,k] s[k]
// so that what is left, n(x) = (x - mean) / deviation, can be folded into a product's epilogue:
//   n(x) W'^T = (x W'^T - mean c) / deviation,   c[n] = sum_k W'[n,k].
// Weights that anything else reads stay as they are, in all functions: one copy is kept.
//
// Idempotent: a norm whose gain is one and that has no shift is left alone.
#include "passes/Rewrite.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Parallel.h"

namespace gpt2c {

namespace {

/// A norm over the last axis with constant vectors of its width.
struct Norm {
  Op *op = nullptr;
  unsigned gainAt = ops::LayerNorm::Scale;
  Value *y = nullptr;
  const Tensor *gain = nullptr, *shift = nullptr; // shift: null without one

  /// Of layer_norm and add_layer_norm: behind the scale. RMS norms have none.
  unsigned shiftAt() const { return gainAt + 1; }
  Value *shiftOperand() const { return op->is(OpCode::RmsNorm) ? nullptr : op->operand(shiftAt()); }
};
static_assert(ops::LayerNorm::Bias == ops::LayerNorm::Scale + 1 &&
              ops::AddLayerNorm::Bias == ops::AddLayerNorm::Scale + 1);

const Tensor *vectorConstant(const Value *v, const Dim &width) {
  const Op *c = v ? constantOp(v) : nullptr;
  return c && c->constant.valid() && v->type.shape == Shape{width} ? &c->constant : nullptr;
}

std::optional<Norm> normOf(const Value *x) {
  Op *op = x->def();
  if (!op ||
      !(op->is(OpCode::LayerNorm) || op->is(OpCode::RmsNorm) || op->is(OpCode::AddLayerNorm)))
    return std::nullopt;
  Norm n{op};
  n.y = op->result();
  if (op->is(OpCode::AddLayerNorm)) {
    n.gainAt = ops::AddLayerNorm::Scale;
    n.y = op->result(ops::AddLayerNorm::Y);
  }
  int64_t last = int64_t(x->type.rank()) - 1;
  if (x != n.y ||
      (op->is(OpCode::LayerNorm) && op->intAttr("axis") != -1 && op->intAttr("axis") != last))
    return std::nullopt;
  n.gain = vectorConstant(op->operand(n.gainAt), x->type.shape.back());
  if (Value *shift = n.shiftOperand())
    if (!(n.shift = vectorConstant(shift, x->type.shape.back())))
      return std::nullopt;
  return n.gain ? std::optional(n) : std::nullopt;
}

std::vector<double> elements(const Tensor &t) {
  std::vector<double> v(t.count());
  t.load(0, v);
  return v;
}

/// Calls f(n, row) with the rows of w[N, K] as doubles.
void forRows(const Tensor &w, llvm::function_ref<void(int64_t, llvm::MutableArrayRef<double>)> f) {
  const int64_t k = w.dim(-1);
  constexpr int64_t rows = 64;
  llvm::parallelFor(0, (w.count() / k + rows - 1) / rows, [&](size_t group) {
    std::vector<double> row(k);
    const int64_t first = int64_t(group) * rows;
    for (int64_t n = first; n < std::min(first + rows, w.count() / k); ++n) {
      w.load(n * k, row);
      f(n, row);
    }
  });
}

bool isFolded(const Norm &n) {
  return !n.shift && llvm::all_of(elements(*n.gain), [](double g) { return g == 1; });
}

/// Gain and shift of the norms that read weights, by the address of their elements. Null gain: a
/// reader that is no product behind a norm, or one behind another norm.
struct Factors {
  const void *gain = nullptr, *shift = nullptr;
  friend bool operator==(const Factors &, const Factors &) = default;
};
Factors factorsOf(const Norm &n) { return {n.gain->raw(), n.shift ? n.shift->raw() : nullptr}; }

void setOptional(Op *op, unsigned i, Value *v) {
  llvm::SmallVector<Value *, 4> operands(op->operands());
  operands.resize(std::max<size_t>(operands.size(), i + 1));
  operands[i] = v;
  while (!operands.back())
    operands.pop_back();
  op->setOperands(operands);
}

class Folder {
public:
  explicit Folder(Module &m) : module_(m) {}

  llvm::Error run() {
    shareConstants();
    for (auto &f : module_.functions)
      for (auto &op : f->ops())
        if (op->is(OpCode::Constant) && op->constant.valid() && op->result()->type.rank() >= 2)
          for (const Use &u : op->result()->uses())
            note(op->constant.raw(), u);
    // A norm is folded when all its readers can be, and weights when all their norms are.
    llvm::SmallVector<std::pair<Function *, Norm>> norms;
    for (auto &f : module_.functions)
      for (auto &op : f->ops())
        for (Value *y : op->results())
          if (auto n = normOf(y); n && !isFolded(*n))
            norms.emplace_back(f.get(), *n);
    for (bool changed = true; changed;) {
      changed = false;
      llvm::erase_if(norms, [&](auto &entry) {
        if (canFold(entry.second))
          return false;
        for (const Use &u : entry.second.y->uses())
          if (const Op *w =
                  u.op->is(OpCode::Linear) ? constantOp(u.op->operand(ops::Linear::W)) : nullptr)
            if (w->constant.valid())
              readers_[w->constant.raw()] = Factors{};
        return changed = true;
      });
    }
    for (auto &[f, n] : norms)
      if (llvm::Error e = fold(*f, n))
        return e;
    for (auto &f : module_.functions)
      f->eraseDeadOps();
    return llvm::Error::success();
  }

private:
  /// Gives constants of equal content one address. Constants of several shapes may have the same
  /// bytes already.
  void shareConstants() {
    llvm::DenseMap<const void *, llvm::SmallVector<std::pair<Tensor, Tensor>, 1>> shared;
    for (auto &f : module_.functions)
      for (auto &op : f->ops())
        if (op->is(OpCode::Constant) && op->constant.valid()) {
          const Tensor &t = op->constant;
          auto &known = shared[t.raw()];
          auto it = llvm::find_if(known, [&](auto &pair) {
            return pair.first.dtype() == t.dtype() && pair.first.shape() == t.shape();
          });
          if (it == known.end())
            it = known.insert(known.end(), {t, pool_.share(t)});
          op->constant = it->second;
        }
  }

  void note(const void *weights, const Use &u) {
    Factors found;
    if (u.op->is(OpCode::Linear) && u.operand == ops::Linear::W)
      if (auto n = normOf(u.op->operand(ops::Linear::X)))
        found = factorsOf(*n);
    auto [it, isNew] = readers_.try_emplace(weights, found);
    if (!isNew && it->second != found)
      it->second = Factors{};
  }

  bool canFold(const Norm &n) const {
    return llvm::all_of(n.y->uses(), [&](const Use &u) {
      if (!u.op->is(OpCode::Linear) || u.operand != ops::Linear::X)
        return false;
      const Op *w = constantOp(u.op->operand(ops::Linear::W));
      Value *bias = u.op->operand(ops::Linear::Bias);
      return w && w->constant.valid() &&
             (!bias || (constantOp(bias) && constantOp(bias)->constant.valid())) &&
             readers_.lookup(w->constant.raw()) == factorsOf(n);
    });
  }

  llvm::Error fold(Function &f, const Norm &n) {
    llvm::SmallVector<Op *> linears;
    for (const Use &u : n.y->uses())
      linears.push_back(u.op);
    for (Op *linear : linears) {
      Builder b(f, linear);
      const Op *w = constantOp(linear->operand(ops::Linear::W));
      b.setLocations(w->locations);
      Value *scaled = b.constant(scaledWeights(w->constant, *n.gain));
      scaled->name = linear->operand(ops::Linear::W)->name;
      if (n.shift) {
        Value *old = linear->operand(ops::Linear::Bias);
        b.setLocations(old ? constantOp(old)->locations : linear->locations);
        Value *bias = b.constant(
            shiftedBias(w->constant, *n.shift, old ? &constantOp(old)->constant : nullptr));
        if (old)
          bias->name = old->name;
        setOptional(linear, ops::Linear::Bias, bias);
      }
      linear->setOperand(ops::Linear::W, scaled);
    }
    Builder b(f, n.op);
    b.setLocations(n.op->locations);
    std::vector<double> ones(n.gain->count(), 1.0);
    Tensor unit = Tensor::of<double>(ones, n.gain->shape()).cast(n.gain->dtype());
    n.op->setOperand(n.gainAt, b.constant(pool_.share(unit)));
    if (n.shift)
      setOptional(n.op, n.shiftAt(), nullptr);
    return llvm::Error::success();
  }

  /// Functions share weights, and so what is made of them.
  Tensor scaledWeights(const Tensor &w, const Tensor &gain) {
    Tensor &made = weights_[w.raw()];
    if (!made.valid()) {
      made = Tensor(w.dtype(), w.shape());
      const std::vector<double> g = elements(gain);
      forRows(w, [&](int64_t n, llvm::MutableArrayRef<double> row) {
        for (size_t k = 0; k < g.size(); ++k)
          row[k] *= g[k];
        made.store(n * int64_t(g.size()), row);
      });
    }
    return made;
  }

  Tensor shiftedBias(const Tensor &w, const Tensor &shift, const Tensor *bias) {
    Tensor &made = biases_[{w.raw(), bias ? bias->raw() : nullptr}];
    if (!made.valid()) {
      const std::vector<double> s = elements(shift);
      std::vector<double> b = bias ? elements(*bias) : std::vector<double>(w.dim(0));
      forRows(w, [&](int64_t n, llvm::ArrayRef<double> row) {
        for (size_t k = 0; k < s.size(); ++k)
          b[n] += row[k] * s[k];
      });
      made = Tensor(w.dtype(), {int64_t(b.size())});
      made.store(0, b);
    }
    return made;
  }

  Module &module_;
  llvm::DenseMap<const void *, Factors> readers_;
  llvm::DenseMap<const void *, Tensor> weights_;
  llvm::DenseMap<std::pair<const void *, const void *>, Tensor> biases_;
  ConstantPool pool_;
};

} // namespace

llvm::Error foldNorms(PassContext &ctx) { return Folder(ctx.module()).run(); }

} // namespace gpt2c

// interleave-rotations: heads whose pairs are elements k and r + k get them as neighbours,
//   rope(linear(x, [.. q_k .. q_r+k ..])) = rope(linear(x, [.. q_k q_r+k ..])) {interleaved}
// so that an epilogue has both where it has one. Elements of queries and keys are in another order
// then, all in the same one, and their products are what they were. Weights, scales and biases move
// at compile time.
//
// The keys of a layer's state are in that order, so that all functions over the state have it, or
// none. @forward has a state of its own, whose keys are those that the exported graph takes and
// gives: its rope puts them back (to_halves), and it shares the weights.
//
// Termination: interleaved pairs stay.
#include "ir/FunctionNames.h"
#include "passes/Pass.h"
#include "passes/quantize/ColumnOrder.h"

#include "llvm/ADT/STLExtras.h"

#include <set>

namespace gpt2c {

/// Whether a product computes what the op turns, for nothing else, and may have its columns in
/// another order. Heads that are normed are no epilogue.
static bool isFree(const Op &rope) {
  using enum ops::Rope::Operand;
  const Value *x = rope.operand(X);
  return !rope.boolAttr("interleaved") && !rope.operand(Scale) && x->hasOneUse() &&
         ColumnOrder::isFree(x->def()) && rope.operand(Cos)->type.shape[1].isConstant();
}

/// The rope that turns all queries and keys of attention over the state, and nothing else; null:
/// there is none that is free.
static Op *freeRope(const Op &op) {
  using enum ops::AppendAttention::Operand;
  if (!op.is(OpCode::AppendAttention) && !op.is(OpCode::QuantizedAppendAttention))
    return nullptr;
  const Value *qkv = op.operand(Qkv);
  Op *rope = qkv->def();
  auto keyHeads = op.operand(Kv)->type.shape[3].constant(),
       headDim = op.operand(Kv)->type.shape[5].constant();
  return rope && rope->is(OpCode::Rope) && qkv->hasOneUse() && isFree(*rope) && keyHeads &&
                 headDim && rope->intAttr("head_dim") == *headDim &&
                 rope->intAttr("heads") == op.intAttr("num_heads") + *keyHeads
             ? rope
             : nullptr;
}

static bool readsState(const Op &op) {
  return op.is(OpCode::AppendAttention) || op.is(OpCode::QuantizedAppendAttention) ||
         op.is(OpCode::CachedAttention) || op.is(OpCode::KvAppend);
}

namespace {

class Interleaver {
public:
  explicit Interleaver(Module &m) : module_(m) {}

  llvm::Error run() {
    collect();
    for (auto &f : module_.functions) {
      llvm::SmallVector<Op *> ropes;
      for (auto &op : f->ops())
        if (op->is(OpCode::Rope) && isFree(*op) && moved_.count(weightsOf(*op)))
          ropes.push_back(op.get());
      for (Op *rope : ropes)
        if (llvm::Error e = rewrite(*f, *rope, f->name() == functions::forward))
          return e;
      f->eraseDeadOps();
    }
    return llvm::Error::success();
  }

private:
  static const void *weightsOf(const Op &rope) {
    return ColumnOrder::weightsOf(*rope.operand(ops::Rope::X)->def()).raw();
  }

  /// Weights of layers in which all attention over the state has a free rope, and which nothing
  /// reads as they are.
  void collect() {
    std::set<int64_t> fixed;
    std::map<const void *, std::set<int64_t>> layers; // by weights
    std::set<const void *> read;
    for (auto &f : module_.functions)
      for (auto &op : f->ops()) {
        if (f->name() != functions::forward && readsState(*op)) {
          const int64_t layer = op->intAttr("layer");
          if (const Op *rope = freeRope(*op))
            layers[weightsOf(*rope)].insert(layer);
          else
            fixed.insert(layer);
        }
        if (ColumnOrder::isFree(op.get()) && !hasFreeRope(*op))
          read.insert(ColumnOrder::weightsOf(*op).raw());
      }
    // Where weights stay, their layers do, and all that other functions compute these with.
    for (bool more = true; more;) {
      more = false;
      moved_.clear();
      for (auto &[weights, of] : layers)
        if (!read.count(weights) && llvm::none_of(of, [&](int64_t l) { return fixed.count(l); }))
          moved_.insert(weights);
        else
          for (int64_t layer : of)
            more |= fixed.insert(layer).second;
    }
  }
  static bool hasFreeRope(const Op &product) {
    const Value *y = product.result(0);
    return y->hasOneUse() && y->uses()[0].op->is(OpCode::Rope) &&
           y->uses()[0].operand == ops::Rope::X && isFree(*y->uses()[0].op);
  }

  llvm::Error rewrite(Function &f, Op &rope, bool toHalves) {
    using enum ops::Rope::Operand;
    Op &product = *rope.operand(X)->def();
    const int64_t n = ColumnOrder::weightsOf(product).dim(0), d = rope.intAttr("head_dim"),
                  heads = rope.intAttr("heads") ? rope.intAttr("heads") : n / d,
                  pairs = *rope.operand(Cos)->type.shape[1].constant();
    std::vector<int64_t> order(n);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t inHead = i % d, pair = inHead / 2 + inHead % 2 * pairs;
      order[i] = i < heads * d && inHead < 2 * pairs ? i - inHead + pair : i;
    }
    auto x = columns_.reorder(f, product, order);
    if (!x)
      return x.takeError();
    Builder at(f, &rope);
    at.setLocations(rope.locations);
    llvm::SmallVector<Value *> operands(rope.operands());
    operands[X] = *x;
    llvm::SmallVector<NamedAttr> attrs(rope.givenAttrs());
    attrs.push_back({"interleaved", true});
    if (toHalves)
      attrs.push_back({"to_halves", true});
    auto y = at.value(OpCode::Rope, operands, attrs);
    if (!y)
      return y.takeError();
    (*y)->name = rope.result()->name;
    rope.result()->replaceAllUsesWith(*y);
    return llvm::Error::success();
  }

  Module &module_;
  ColumnOrder columns_;
  std::set<const void *> moved_;
};

} // namespace

llvm::Error interleaveRotations(PassContext &ctx) { return Interleaver(ctx.module()).run(); }

} // namespace gpt2c

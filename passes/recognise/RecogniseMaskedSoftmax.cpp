// recognise-masked-softmax: softmax(scale x + bias) of scores [batch, heads, queries, keys] under a
// mask, guards of rows that see nothing included, becomes masked_softmax. It runs behind
// recognise-attention and takes what that left: scores that the graph is given, and attention with
// something else about it.
#include "passes/proof/KvInterface.h"
#include "passes/proof/masks/AttentionProbe.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace gpt2c {

static bool isElementwise(const Op *op) { return op->info().has(Elementwise); }

/// Whether `v` is computed from floating-point data, as scores are, rather than from shapes, token
/// masks and constants, as masks are.
static bool readsScores(Value *v) {
  BackwardSlice slice = backwardSlice(v, [](Value *u) { return u->def()->is(OpCode::MatMul); });
  return llvm::any_of(slice.leaves, [](Value *l) { return isFloat(l->type.dtype); });
}

/// What may be the scores: `x` and, as long as one operand of an elementwise op carries them on,
/// what it is computed from.
static llvm::SmallVector<Value *> scoreCandidates(Value *x) {
  llvm::SmallVector<Value *> candidates{x};
  while (x->def() && isElementwise(x->def())) {
    llvm::SmallVector<Value *> carriers;
    for (Value *v : x->def()->operands())
      if (isFloat(v->type.dtype) && v->type.shape == x->type.shape && readsScores(v))
        carriers.push_back(v);
    if (carriers.empty())
      break;
    // A sum of two: the first, which the other is a bias of.
    x = carriers.front();
    candidates.push_back(x);
  }
  return candidates;
}

/// What may be the probabilities: `p` and what elementwise ops make of nothing else, as long as
/// nobody else reads it.
static llvm::SmallVector<Value *> probabilityCandidates(Value *p) {
  llvm::SmallVector<Value *> candidates{p};
  auto next = [](Value *v) -> Value * {
    for (const Use &u : v->uses()) {
      if (!isElementwise(u.op) || !isFloat(u.op->result()->type.dtype) ||
          u.op->result()->type.shape != v->type.shape)
        continue;
      BackwardSlice slice = backwardSlice(u.op->result(), [&](Value *w) { return w == v; });
      bool alone = llvm::all_of(slice.leaves, [&](Value *leaf) { return leaf == v; });
      if (alone && llvm::all_of(v->uses(), [&](const Use &w) { return slice.contains(w.op); }))
        return u.op->result();
    }
    return nullptr;
  };
  while (Value *v = next(candidates.back()))
    candidates.push_back(v);
  return candidates;
}

static llvm::Expected<Value *> build(Function &f, Value *scores, Value *probabilities,
                                     const MaskedSoftmax &m) {
  Builder b(f, probabilities->def());
  auto keyMask = keyMaskOperand(b, m);
  if (!keyMask)
    return keyMask.takeError();
  llvm::SmallVector<Value *, 3> operands{scores, *keyMask};
  if (m.hasBias()) {
    auto bias = scoreBias(b, m, scores->type.dtype);
    if (!bias)
      return bias.takeError();
    operands.push_back(*bias);
  }
  // The scale is written in the precision of the graph.
  double scale = std::abs(m.scale - 1) <= 1e-9 ? 1 : double(float(m.scale));
  return b.value(OpCode::MaskedSoftmax, operands, {{"scale", scale}, {"causal", m.causal}});
}

static llvm::Error recogniseSoftmax(PassContext &ctx, Function &f, Op *softmax) {
  int64_t axis = softmax->intAttr("axis"), rank = softmax->result()->type.rank();
  if (axis != -1 && axis != rank - 1)
    return llvm::Error::success();
  auto scores = scoreCandidates(softmax->operand(0));
  auto probabilities = probabilityCandidates(softmax->result());
  if (scores.size() == 1 && probabilities.size() == 1)
    return llvm::Error::success(); // a softmax and nothing else
  Obstacle why;
  for (Value *p : llvm::reverse(probabilities))
    for (Value *s : llvm::reverse(scores)) {
      if (s->type != p->type || (s == softmax->operand(0) && p == softmax->result()))
        continue;
      Obstacle reason;
      auto found = probeMaskedSoftmax(f, s, p, ctx.options().maxContext, /*windows=*/false, reason);
      if (!found) {
        if (why.reason.empty())
          why = reason;
        continue;
      }
      BackwardSlice slice =
          backwardSlice(p, [&](Value *v) { return v == s || found->readsAsBias(v); });
      auto y = build(f, s, p, *found);
      if (!y)
        return y.takeError();
      adoptLocations({(*y)->def()}, slice.ops);
      p->replaceAllUsesWith(*y);
      return llvm::Error::success();
    }
  BackwardSlice apart =
      backwardSlice(probabilities.back(), [&](Value *v) { return v == scores.back(); });
  auto said = [&](llvm::StringRef node) {
    return llvm::any_of(ctx.remarks(), [&](const Remark &r) {
      return llvm::is_contained(r.nodes, node) || llvm::is_contained(r.apart, node);
    });
  };
  if (llvm::any_of(softmax->locations, said))
    return llvm::Error::success();
  if (why.reason.empty())
    why = "scores and probabilities differ in type";
  ctx.missed("masked softmax: what is around " + softmax->describe() + " is none: " + why.reason +
                 "; kept as separate ops",
             softmax->locations)
      .of("masked softmax")
      .stoppedBy(why)
      .costing(apart.ops);
  return llvm::Error::success();
}

llvm::Error recogniseMaskedSoftmax(PassContext &ctx) {
  for (auto &f : ctx.module().functions) {
    if (isStoodFor(ctx.module(), *f))
      continue;
    llvm::SmallVector<Op *> softmaxes;
    for (auto &op : f->ops())
      if (op->is(OpCode::Softmax))
        softmaxes.push_back(op.get());
    for (Op *softmax : softmaxes)
      if (llvm::Error e = recogniseSoftmax(ctx, *f, softmax))
        return e;
    f->eraseDeadOps();
  }
  return llvm::Error::success();
}

} // namespace gpt2c

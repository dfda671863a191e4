// recognise-attention: softmax(scale q k^T + mask) v over heads split from [batch, tokens, width]
// tensors becomes attention. Every op between scores and probabilities is accounted for, and the
// mask, which depends on nothing but indices and the attention mask, is evaluated over the model's
// full context (AttentionProbe.h); splitting and merging of heads is recognised by running the
// copies on numbered elements. Heads of keys and values may be repeated for several of queries.
#include "passes/proof/KvInterface.h"
#include "passes/proof/masks/AttentionProbe.h"
#include "passes/quantize/Precision.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace gpt2c {

/// The columns [offset, offset + width) of a [batch, tokens, w] tensor, or of one whose columns are
/// heads.
static llvm::Expected<Value *> columns(Builder &b, Value *x, int64_t offset, int64_t width) {
  if (const Shape &s = x->type.shape; s.size() == 4) {
    auto rows = b.value(OpCode::Reshape, {x}, {{"shape", Dims{s[0], s[1], s[2] * s[3]}}});
    if (!rows)
      return rows;
    x = *rows;
  }
  if (x->type.shape.back() == Dim(width))
    return x;
  return b.value(OpCode::Slice, {x},
                 {{"starts", Dims{offset}}, {"ends", Dims{offset + width}}, {"axes", Dims{2}}});
}

/// The past keys or values as [batch, heads, past, head_dim].
static llvm::Expected<Value *> pastOf(Builder &b, const HeadLayout &l) {
  if (!l.pastSource || l.pastPart < 0)
    return l.pastSource;
  auto part =
      b.value(OpCode::Slice, {l.pastSource},
              {{"starts", Dims{l.pastPart}}, {"ends", Dims{l.pastPart + 1}}, {"axes", Dims{0}}});
  if (!part)
    return part.takeError();
  const Shape &s = (*part)->type.shape;
  return b.value(OpCode::Reshape, {*part}, {{"shape", Dims(s.begin() + 1, s.end())}});
}

/// Whether arguments other than `own` have the symbol in their shapes.
static bool isShared(const Function &f, llvm::StringRef symbol, const Value *own) {
  for (unsigned i = 0; i < f.numArguments(); ++i)
    if (const Value *v = f.argument(i); v != own)
      for (const Dim &d : v->type.shape)
        if (d.uses(symbol))
          return true;
  return false;
}

/// An attention mask has one entry per sequence and key. Exporters give its numbers of them names
/// of their own (`total`, where the keys are `past + seq`): from here on they are those of the
/// scores.
static llvm::Error unifyMaskShape(Function &f, Value *scores, Value *probabilities) {
  if (scores->type.rank() != 4)
    return llvm::Error::success();
  BackwardSlice slice = backwardSlice(probabilities, [&](Value *v) { return v == scores; });
  for (Value *leaf : slice.leaves) {
    if (leaf == scores || leaf->def() || leaf->type.rank() != 2)
      continue;
    for (auto [axis, other] : {std::pair(0, 0), std::pair(1, 3)}) {
      const Dim of = scores->type.shape[other];
      auto own = leaf->type.shape[axis].asSymbol();
      if (!own || of.uses(*own) || (axis == 0 && isShared(f, *own, leaf)))
        continue;
      // Texts and tokens are counted apart, whichever of them a graph takes for which.
      if (auto across = leaf->type.shape[1 - axis].asSymbol(); across && of.uses(*across))
        continue;
      f.substitute(*own, of);
      if (llvm::Error e = f.inferTypes())
        return e;
    }
  }
  return llvm::Error::success();
}

/// Scores or probabilities that something beside the attention reads have to be computed apart.
static void remarkOtherUses(PassContext &ctx, Op *scoreOp, Op *valueProduct) {
  llvm::SmallVector<Op *> chain{scoreOp};
  const Op *other = nullptr;
  for (size_t i = 0; i < chain.size(); ++i)
    for (Value *r : chain[i]->results())
      for (const Use &u : r->uses()) {
        BackwardSlice toValues = backwardSlice(valueProduct->operand(ops::MatMul::A),
                                               [&](Value *v) { return v == scoreOp->result(); });
        if (u.op == valueProduct || llvm::is_contained(chain, u.op))
          continue;
        if (toValues.contains(u.op))
          chain.push_back(u.op);
        else
          other = u.op;
      }
  if (!other)
    return;
  ctx.missed("attention: it is one op, but " + other->describe() +
                 " reads its scores or probabilities too, which are computed a second time for it",
             scoreOp->locations)
      .of("attention")
      .after("all of it")
      .stoppedBy({"", other, "scores"})
      .costing(chain);
}

namespace {

/// Probabilities that were found to be a softmax of scores without a bias.
struct KnownSoftmax {
  Value *scores, *probabilities;
  MaskedSoftmax mask;
};

} // namespace

namespace {

/// cap tanh(factor x) of a product x.
struct SoftCap {
  Value *scores;
  double factor = 1, cap = 1;
};

} // namespace

/// What products become that a tanh caps, where nothing else reads them.
static std::optional<SoftCap> softCapOf(Value *product) {
  SoftCap found{product};
  bool capped = false;
  while (found.scores->uses().size() == 1) {
    const Use use = found.scores->uses().front();
    double &factor = capped ? found.cap : found.factor;
    if (use.op->is(OpCode::Tanh) && !capped) {
      capped = true;
    } else if (use.op->is(OpCode::Mul)) {
      auto by = scalarConstant(use.op->operand(1 - use.operand));
      if (!by)
        break;
      factor *= *by;
    } else if (use.op->is(OpCode::Div) && use.operand == 0) {
      auto by = scalarConstant(use.op->operand(1));
      if (!by || *by == 0)
        break;
      factor /= *by;
    } else {
      break;
    }
    found.scores = use.op->result();
  }
  return capped && found.cap > 0 ? std::optional(found) : std::nullopt;
}

/// Evaluates once what all layers compute alike; how large scores become depends on the layer.
static std::optional<MaskedSoftmax> maskedSoftmaxOf(const Function &f, Value *scores,
                                                    Value *probabilities, int64_t context,
                                                    std::vector<KnownSoftmax> &known,
                                                    Obstacle &why) {
  Obstacle beyond;
  for (const KnownSoftmax &k : known)
    if (computedAlike(k.probabilities, k.scores, probabilities, scores) &&
        holdsForScores(f, k.mask, scores, beyond))
      return k.mask;
  auto mask = probeMaskedSoftmax(f, scores, probabilities, context, /*windows=*/true, why);
  if (mask && !mask->hasBias() && !mask->limited)
    known.push_back({scores, probabilities, *mask});
  return mask;
}

static llvm::Error recogniseProduct(PassContext &ctx, Function &f, Op *valueProduct,
                                    std::vector<KnownSoftmax> &known) {
  Op *scoreOp = scoreProduct(valueProduct->operand(ops::MatMul::A));
  if (!scoreOp || scoreOp == valueProduct ||
      scoreOp->result() == valueProduct->operand(ops::MatMul::A))
    return llvm::Error::success();
  if (llvm::Error e = unifyMaskShape(f, scoreOp->result(), valueProduct->operand(ops::MatMul::A)))
    return e;
  llvm::SmallVector<llvm::StringRef, 8> nodes(scoreOp->locations.begin(), scoreOp->locations.end());
  nodes.append(valueProduct->locations.begin(), valueProduct->locations.end());
  auto missed = [&](llvm::StringRef what, const Obstacle &why) {
    BackwardSlice apart = backwardSlice(valueProduct->result(), [&](Value *u) {
      return u == scoreOp->operand(ops::MatMul::A) || u == scoreOp->operand(ops::MatMul::B) ||
             u == valueProduct->operand(ops::MatMul::B);
    });
    Remark &remark = ctx.missed("attention: " + what + " at " + valueProduct->describe() + ": " +
                                    why.reason + "; kept as separate ops",
                                nodes);
    remark.of("attention").after(what).stoppedBy(why).costing(apart.ops);
    return llvm::Error::success();
  };
  Obstacle why;
  const auto cap = softCapOf(scoreOp->result());
  auto mask =
      maskedSoftmaxOf(f, cap ? cap->scores : scoreOp->result(),
                      valueProduct->operand(ops::MatMul::A), ctx.options().maxContext, known, why);
  if (mask && cap && std::abs(mask->scale - 1) > 1e-6)
    return missed("scores to probabilities", {"they are scaled behind a soft cap"});
  if (!mask) {
    // Where queries or keys are no copies of products, no bound of the scores is known either.
    Obstacle heads;
    if (!probeHeads(f, scoreOp->operand(ops::MatMul::A), false, heads))
      return missed("queries", heads);
    if (!probeHeads(f, scoreOp->operand(ops::MatMul::B), true, heads))
      return missed("keys", heads);
    return missed("scores to probabilities", why);
  }
  const std::string maskReason = why.reason;
  auto q = probeHeads(f, scoreOp->operand(ops::MatMul::A), false, why);
  if (!q || q->pastSource)
    return missed("queries", q ? Obstacle{"they come from a past tensor"} : why);
  auto k = probeHeads(f, scoreOp->operand(ops::MatMul::B), true, why);
  if (!k)
    return missed("keys", why);
  auto v = probeHeads(f, valueProduct->operand(ops::MatMul::B), false, why);
  if (!v)
    return missed("values", why);
  k->broadcastTo(*q);
  v->broadcastTo(*q);
  if (q->heads != k->heads || k->heads != v->heads || q->headDim != k->headDim ||
      k->headDim != v->headDim)
    return missed("heads", {"queries, keys and values differ in number or size of heads"});
  if (q->group != 1 || k->group != v->group)
    return missed("heads", {q->group != 1 ? "several heads of queries are copies of one"
                                          : "keys and values differ in the number of heads that "
                                            "queries share"});
  if (bool(k->pastSource) != bool(v->pastSource))
    return missed("past", {"only one of keys and values has a past tensor"});
  if (std::abs(v->factor - 1) > 1e-9) {
    BackwardSlice values = backwardSlice(valueProduct->operand(ops::MatMul::B),
                                         [&](Value *u) { return u == v->source; });
    auto scales = llvm::find_if(values.ops,
                                [](Op *op) { return op->is(OpCode::Mul) || op->is(OpCode::Div); });
    return missed("values", {"they are scaled by " + std::to_string(v->factor),
                             scales == values.ops.end() ? nullptr : *scales, "scale"});
  }

  Builder b(f, valueProduct);
  llvm::SmallVector<Value *, 6> operands;
  for (const HeadLayout *l : {&*q, &*k, &*v}) {
    auto c = columns(b, l->source, l->offset, l->sourceHeads() * l->headDim);
    if (!c)
      return c.takeError();
    operands.push_back(*c);
  }
  for (const HeadLayout *l : {&*k, &*v}) {
    auto past = pastOf(b, *l);
    if (!past)
      return past.takeError();
    operands.push_back(*past);
  }
  auto keyMask = keyMaskOperand(b, *mask);
  if (!keyMask)
    return keyMask.takeError();
  operands.push_back(*keyMask);
  if (mask->hasBias()) {
    auto bias = scoreBias(b, *mask, operands[ops::Attention::Q]->type.dtype);
    if (!bias)
      return bias.takeError();
    operands.push_back(*bias);
  }
  double scale = (cap ? cap->factor * cap->cap : mask->scale) * q->factor * k->factor;
  // Exporters write the scale, or its square root twice, in the precision of the graph: what is
  // meant is the exact one.
  double ideal = 1 / std::sqrt(double(q->headDim));
  const DType type = valueProduct->result()->type.dtype;
  double rounding = isNarrow(type) ? 2.1 * unitRoundoff(type) : 1e-6;
  if (std::abs(scale - ideal) <= rounding * ideal)
    scale = ideal;
  llvm::SmallVector<NamedAttr> attrs{
      {"num_heads", q->heads}, {"scale", scale}, {"causal", mask->causal}};
  if (mask->window)
    attrs.push_back({"window", mask->window});
  if (cap)
    attrs.push_back({"soft_cap", cap->cap});
  auto attention = b.value(OpCode::Attention, operands, attrs);
  if (!attention)
    return attention.takeError();
  const Shape &s = (*attention)->type.shape;
  auto heads =
      b.value(OpCode::Reshape, {*attention}, {{"shape", Dims{s[0], s[1], q->heads, q->headDim}}});
  if (!heads)
    return heads.takeError();
  auto result = b.value(OpCode::Transpose, {*heads}, {{"perm", Dims{0, 2, 1, 3}}});
  if (!result)
    return result.takeError();
  if ((*result)->type != valueProduct->result()->type)
    return missed("result", {"its type " + valueProduct->result()->type.str() + " is not " +
                             (*result)->type.str()});
  BackwardSlice slice = backwardSlice(valueProduct->result(), [&](Value *u) {
    return u == q->source || u == k->source || u == v->source || !u->def() ||
           u->def()->is(OpCode::Linear);
  });
  adoptLocations({(*attention)->def()}, slice.ops);
  if (mask->hasBias())
    ctx.note("attention: the mask at " + valueProduct->describe() +
                 " is neither none, causal nor padding (" + maskReason +
                 "); it is added to the scores as it is",
             nodes)
        .of("attention")
        .stoppedBy({"", (*attention)->def(), "mask"});
  for (auto [what, l] : {std::pair{"queries", &*q}, {"keys", &*k}, {"values", &*v}})
    if (l->rounding)
      ctx.note(llvm::Twine("attention: ") + what + " go through " + l->rounding->describe() +
                   ", a cast that rounds; the attention takes them as they are",
               l->rounding->locations)
          .of("attention")
          .stoppedBy({"", l->rounding, "to"});
  if (scale != ideal)
    ctx.note("attention: the scale " + shortNumber(scale) + " at " + valueProduct->describe() +
                 " is not 1 / sqrt(head_dim) = " + shortNumber(ideal) + "; it is taken as it is",
             nodes)
        .of("attention")
        .stoppedBy({"", (*attention)->def(), "scale"});
  valueProduct->result()->replaceAllUsesWith(*result);
  remarkOtherUses(ctx, scoreOp, valueProduct);
  return llvm::Error::success();
}

llvm::Error recogniseAttention(PassContext &ctx) {
  for (auto &f : ctx.module().functions) {
    if (isStoodFor(ctx.module(), *f))
      continue;
    std::vector<KnownSoftmax> known;
    llvm::SmallVector<Op *> products;
    for (auto &op : f->ops())
      if (op->is(OpCode::MatMul))
        products.push_back(op.get());
    for (Op *product : products)
      if (product->hasUses())
        if (llvm::Error e = recogniseProduct(ctx, *f, product, known))
          return e;
    f->eraseDeadOps();
  }
  return llvm::Error::success();
}

} // namespace gpt2c

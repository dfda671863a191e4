// fuse-kv: keys and values are appended where they are read, out of one packed [b, s, 3 * width]
// tensor; separate products for queries, keys and values become one. Where nothing but the last
// token of each sequence is read of the result, nothing else is computed. Token and position tables
// are read together.
//
// Termination: every rewrite removes a kv_append, a linear or a gather.
#include "passes/Rewrite.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>

namespace gpt2c {

using P = Pattern;

/// Where `v` starts in its source when it is a slice of columns.
static std::pair<Value *, int64_t> columnSource(Value *v) {
  Op *op = v->def();
  if (!op || !op->is(OpCode::Slice) || !op->hasAttr("starts") || !op->hasAttr("axes") ||
      op->operand(4) || op->hasAttr("steps"))
    return {v, 0};
  const Dims &axes = op->dimsAttr("axes"), &starts = op->dimsAttr("starts");
  int64_t last = v->type.rank() - 1;
  if (axes.size() != 1 || (axes[0] != Dim(last) && axes[0] != Dim(-1)) || !starts[0].isConstant())
    return {v, 0};
  return {op->operand(0), *starts[0].constant()};
}

/// The rows of several weight matrices [n_i, K], or the elements of several vectors, one after the
/// other.
static Tensor stacked(llvm::ArrayRef<Tensor> parts) {
  llvm::SmallVector<int64_t> shape(parts[0].shape());
  shape[0] = 0;
  for (const Tensor &t : parts)
    shape[0] += t.dim(0);
  Tensor out(parts[0].dtype(), shape);
  char *to = static_cast<char *>(out.raw());
  for (const Tensor &t : parts) {
    std::memcpy(to, t.raw(), t.bytes());
    to += t.bytes();
  }
  return out;
}

/// The constants one below the other, as one; null when one is no constant.
static Value *stackedConstants(llvm::ArrayRef<Value *> parts, Builder &b) {
  llvm::SmallVector<Tensor> tensors;
  for (Value *v : parts) {
    Op *c = constantOp(v);
    if (!c || !c->constant.valid() || v->type.dtype != parts[0]->type.dtype)
      return nullptr;
    tensors.push_back(c->constant);
  }
  return b.constant(stacked(tensors));
}

/// The same for weights, which may be int8 that is dequantised with a scale for each row.
static llvm::Expected<Value *> stackedWeights(llvm::ArrayRef<Value *> parts, Builder &b) {
  llvm::SmallVector<Value *> q, scales;
  for (Value *v : parts)
    if (Op *def = v->def(); def && def->is(OpCode::Dequantize)) {
      q.push_back(def->operand(0));
      scales.push_back(def->operand(1));
    }
  if (q.size() != parts.size())
    return stackedConstants(parts, b);
  Value *weights = stackedConstants(q, b), *scale = stackedConstants(scales, b);
  if (!weights || !scale)
    return nullptr;
  return b.value(OpCode::Dequantize, {weights, scale}, parts[0]->def()->givenAttrs());
}

/// One product for three that share their input: linear(x, [wq; wk; wv], [bq; bk; bv]). Null when
/// they do not.
static llvm::Expected<Value *> mergedProduct(llvm::ArrayRef<Value *> qkv, Builder &b) {
  llvm::SmallVector<Value *> weights, biases;
  for (Value *v : qkv) {
    Op *l = v->def();
    if (!l || !l->is(OpCode::Linear) || l->operand(0) != qkv[0]->def()->operand(0) ||
        l->operand(3) || l->stringAttr("activation") != "none" ||
        bool(l->operand(2)) != bool(qkv[0]->def()->operand(2)))
      return nullptr;
    weights.push_back(l->operand(1));
    if (l->operand(2))
      biases.push_back(l->operand(2));
  }
  Value *bias = biases.empty() ? nullptr : stackedConstants(biases, b);
  if (!biases.empty() && !bias)
    return nullptr;
  auto weight = stackedWeights(weights, b);
  if (!weight || !*weight)
    return weight;
  return b.value(OpCode::Linear, {qkv[0]->def()->operand(0), *weight, bias});
}

/// The packed tensor of which q, k and v are the thirds.
static llvm::Expected<Value *> packedOf(llvm::ArrayRef<Value *> qkv, Builder &b) {
  int64_t width = qkv[0]->type.shape.back().constant().value_or(0);
  auto [source, first] = columnSource(qkv[0]);
  bool packed = source->type.shape.back() == Dim(3 * width) && first == 0;
  for (int64_t i = 1; i < 3; ++i) {
    auto [s, at] = columnSource(qkv[i]);
    packed &= s == source && at == i * width;
  }
  if (packed)
    return source;
  auto merged = mergedProduct(qkv, b);
  if (!merged || *merged)
    return merged;
  return b.value(OpCode::Concat, qkv, {{"axis", int64_t(-1)}});
}

/// What gather_last takes as lengths where nothing else reads `y`; null otherwise.
static Value *lengthOfReaders(const Value &y) {
  const Op *first = y.uses().empty() ? nullptr : y.uses().front().op;
  auto isLast = [&](const Use &u) {
    return u.op->is(OpCode::GatherLast) && u.op->operand(1) == first->operand(1);
  };
  // Arguments are there before the attention.
  return first && llvm::all_of(y.uses(), isLast) && !first->operand(1)->def() ? first->operand(1)
                                                                              : nullptr;
}

static llvm::Error fuseAttention(PassContext &ctx, Function &f, Op *attention) {
  Op *append = attention->operand(1)->def();
  if (!append || !append->is(OpCode::KvAppend) || append->operand(3) != attention->operand(2) ||
      append->intAttr("layer") != attention->intAttr("layer"))
    return llvm::Error::success();
  Builder b(f, attention);
  auto qkv = packedOf({attention->operand(0), append->operand(1), append->operand(2)}, b);
  if (!qkv)
    return qkv.takeError();
  if ((*qkv)->def() && (*qkv)->def()->is(OpCode::Concat))
    ctx.missed("attention: queries, keys and values of " + attention->describe() +
                   " come from different products that cannot be merged; they are copied together "
                   "at every step",
               attention->locations)
        .of("append_attention")
        .after("one source of queries, keys and values")
        .costing({(*qkv)->def(), attention});
  Value *length = lengthOfReaders(*attention->result());
  auto fused =
      b.create(OpCode::AppendAttention,
               {append->operand(0), *qkv, attention->operand(2), attention->operand(3), length},
               attention->givenAttrs());
  if (!fused)
    return fused.takeError();
  adoptLocations(b.created(), {attention, append});
  append->result()->replaceAllUsesWith((*fused)->result(0));
  if (length)
    for (const Use &u : llvm::SmallVector<Use>(attention->result()->uses()))
      u.op->result()->replaceAllUsesWith((*fused)->result(1));
  else
    attention->result()->replaceAllUsesWith((*fused)->result(1));
  return llvm::Error::success();
}

static std::vector<Rule> embedRules() {
  std::vector<Rule> rules;
  auto tokens = P::op(OpCode::Gather, {P::constant("tokens"), P::argument("ids")}, "t");
  auto guard = [](const Match &m) {
    return m.value("ids")->type.rank() == 2 && m.value("tokens")->type.rank() == 2 &&
           m.value("positions")->type.rank() == 2 && m.op("t")->intAttr("axis") == 0 &&
           m.op("p")->intAttr("axis") == 0 && m.value("t")->hasOneUse();
  };
  rules.push_back(
      {"embed-past", "tokens[ids] + positions[past + s] = embed(ids, tokens, positions, past)",
       P::op(OpCode::Add,
             {tokens,
              P::op(OpCode::Gather,
                    {P::constant("positions"), P::op(OpCode::Positions, {P::any("past")})}, "p")}),
       guard, [](const Match &m, Builder &b) {
         return b.value(OpCode::Embed,
                        {m.value("ids"), m.value("tokens"), m.value("positions"), m.value("past")});
       }});
  rules.push_back(
      {"embed-ids",
       "tokens[ids] + positions[position_ids] = embed(ids, tokens, positions, none, position_ids)",
       P::op(OpCode::Add,
             {tokens,
              P::op(OpCode::Gather, {P::constant("positions"), P::argument("position_ids")}, "p")}),
       guard, [](const Match &m, Builder &b) {
         return b.value(OpCode::Embed, {m.value("ids"), m.value("tokens"), m.value("positions"),
                                        nullptr, m.value("position_ids")});
       }});
  return rules;
}

llvm::Error fuseKv(PassContext &ctx) {
  for (auto &f : ctx.module().functions) {
    llvm::SmallVector<Op *> attentions;
    for (auto &op : f->ops())
      if (op->is(OpCode::CachedAttention))
        attentions.push_back(op.get());
    for (Op *a : attentions)
      if (llvm::Error e = fuseAttention(ctx, *f, a))
        return e;
    f->eraseDeadOps();
    auto n = applyRules(*f, embedRules());
    if (!n)
      return n.takeError();
  }
  return llvm::Error::success();
}

} // namespace gpt2c

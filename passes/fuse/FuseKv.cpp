// fuse-kv: keys and values are appended where they are read, out of one packed tensor of queries,
// keys and values, of which a rotary embedding turns the heads in front, and norms them where the
// model does; separate products for queries, keys and values become one. Where nothing but the last
// token of each sequence is read of the result, nothing else is computed. Token and position tables
// are read together.
//
// Termination: every rewrite removes a kv_append, a linear or a gather.
#include "passes/fuse/MergedProduct.h"

#include "llvm/ADT/STLExtras.h"

#include <optional>
#include <vector>

namespace gpt2c {

using P = Pattern;

/// The packed tensor of which q, k and v are the parts, one after the other.
static llvm::Expected<Value *> packedOf(llvm::ArrayRef<Value *> qkv, Builder &b) {
  auto packed = besideEachOther(qkv, b);
  if (!packed || *packed)
    return packed;
  return b.value(OpCode::Concat, qkv, {{"axis", int64_t(-1)}});
}

/// Whether both turn all of their heads by the same angles, and nothing else reads what they give.
static bool turnAlike(const Value *q, const Value *k) {
  const Op *a = q->def(), *c = k->def();
  bool both = a && c && a->is(OpCode::Rope) && c->is(OpCode::Rope) && q->hasOneUse() &&
              k->hasOneUse() && a->operands().drop_front() == c->operands().drop_front();
  return both && a->intAttr("heads") == 0 && !a->operand(ops::Rope::Scale) && sameAttrs(*a, *c);
}

namespace {

/// Heads of columns, each divided by its root mean square and times `scale`.
struct NormedHeads {
  Value *x;
  const Tensor *scale; ///< [head_dim]
  double epsilon;

  /// What `v` is, reshape(rms_norm(reshape(x))); none where it is something else.
  static std::optional<NormedHeads> of(const Value *v, int64_t headDim) {
    const Op *back = v->def(),
             *norm = back && back->is(OpCode::Reshape) ? back->operand(0)->def() : nullptr;
    const Op *apart =
        norm && norm->is(OpCode::RmsNorm) ? norm->operand(ops::RmsNorm::X)->def() : nullptr;
    const Op *scale = apart ? constantOp(norm->operand(ops::RmsNorm::Scale)) : nullptr;
    if (!scale || !scale->constant.valid() || !apart->is(OpCode::Reshape) ||
        apart->result()->type.shape.back() != Dim(headDim) ||
        apart->operand(0)->type.shape != v->type.shape ||
        byteSize(scale->constant.dtype()) > byteSize(DType::F32))
      return std::nullopt;
    return NormedHeads{apart->operand(0), &scale->constant, norm->floatAttr("epsilon")};
  }
  int64_t heads() const { return *x->type.shape.back().constant() / scale->count(); }
};

} // namespace

/// The gains of all heads of both, as rope has them.
static Value *gainsOf(const NormedHeads &q, const NormedHeads &k, Builder &b) {
  const int64_t d = q.scale->count();
  std::vector<float> gains;
  for (const NormedHeads *part : {&q, &k}) {
    const Tensor gain = part->scale->cast(DType::F32);
    for (int64_t head = 0; head < part->heads(); ++head)
      llvm::append_range(gains, llvm::ArrayRef(gain.data<float>(), size_t(d)));
  }
  return b.constant(Tensor::of<float>(gains, {int64_t(gains.size()) / d, d}));
}

/// The same where queries and keys are turned: rope(packed), of the heads in front of the values.
static llvm::Expected<Value *> turnedOf(llvm::ArrayRef<Value *> qkv, Builder &b) {
  if (!turnAlike(qkv[0], qkv[1]))
    return packedOf(qkv, b);
  Op *q = qkv[0]->def(), *k = qkv[1]->def();
  Value *x[] = {q->operand(ops::Rope::X), k->operand(ops::Rope::X)};
  const auto ofQ = NormedHeads::of(x[0], q->intAttr("head_dim")),
             ofK = NormedHeads::of(x[1], q->intAttr("head_dim"));
  const bool normed = ofQ && ofK && ofQ->epsilon == ofK->epsilon;
  auto packed = packedOf({normed ? ofQ->x : x[0], normed ? ofK->x : x[1], qkv[2]}, b);
  if (!packed)
    return packed;
  int64_t width = *qkv[0]->type.shape.back().constant() + *qkv[1]->type.shape.back().constant();
  Value *positions = q->operand(ops::Rope::Positions);
  if (positions->def() && positions->def()->is(OpCode::Positions))
    positions = positions->def()->operand(0);
  llvm::SmallVector<NamedAttr> attrs = {{"head_dim", q->intAttr("head_dim")},
                                        {"heads", width / q->intAttr("head_dim")},
                                        {"interleaved", q->boolAttr("interleaved")}};
  if (normed)
    attrs.push_back({"epsilon", ofQ->epsilon});
  return b.value(OpCode::Rope,
                 {*packed, positions, q->operand(ops::Rope::Cos), q->operand(ops::Rope::Sin),
                  normed ? gainsOf(*ofQ, *ofK, b) : nullptr},
                 attrs);
}

/// What gather_last takes as lengths where nothing else reads `y`; null otherwise.
static Value *lengthOfReaders(const Value &y) {
  const Op *first = y.uses().empty() ? nullptr : y.uses().front().op;
  auto isLast = [&](const Use &u) {
    return u.op->is(OpCode::GatherLast) &&
           u.op->operand(ops::GatherLast::Length) == first->operand(ops::GatherLast::Length);
  };
  // Arguments are there before the attention.
  return first && llvm::all_of(y.uses(), isLast) && !first->operand(ops::GatherLast::Length)->def()
             ? first->operand(ops::GatherLast::Length)
             : nullptr;
}

static llvm::Error fuseAttention(PassContext &ctx, Function &f, Op *attention) {
  Op *append = attention->operand(ops::CachedAttention::Kv)->def();
  if (!append || !append->is(OpCode::KvAppend) ||
      append->operand(ops::KvAppend::Past) != attention->operand(ops::CachedAttention::Past) ||
      append->intAttr("layer") != attention->intAttr("layer"))
    return llvm::Error::success();
  Builder b(f, attention);
  auto qkv = turnedOf({attention->operand(ops::CachedAttention::Q),
                       append->operand(ops::KvAppend::K), append->operand(ops::KvAppend::V)},
                      b);
  if (!qkv)
    return qkv.takeError();
  if (llvm::any_of(b.created(), [](const Op *op) { return op->is(OpCode::Concat); }))
    ctx.missed("attention: queries, keys and values of " + attention->describe() +
                   " come from different products that cannot be merged; they are copied together "
                   "at every step",
               attention->locations)
        .of("append_attention")
        .after("one source of queries, keys and values")
        .costing({b.created().front(), attention});
  Value *length = lengthOfReaders(*attention->result());
  auto fused = b.create(OpCode::AppendAttention,
                        {append->operand(ops::KvAppend::Kv), *qkv,
                         attention->operand(ops::CachedAttention::Past),
                         attention->operand(ops::CachedAttention::KeyMask), length},
                        attention->givenAttrs());
  if (!fused)
    return fused.takeError();
  adoptLocations(b.created(), {attention, append});
  append->result()->replaceAllUsesWith((*fused)->result(ops::AppendAttention::NextKv));
  if (length)
    for (const Use &u : llvm::SmallVector<Use>(attention->result()->uses()))
      u.op->result()->replaceAllUsesWith((*fused)->result(ops::AppendAttention::Y));
  else
    attention->result()->replaceAllUsesWith((*fused)->result(ops::AppendAttention::Y));
  return llvm::Error::success();
}

/// tokens[ids], of a table of floats, or of bytes with their scales.
static P lookup(bool bytes) {
  P table = bytes ? P::op(OpCode::Dequantize, {P::constant("tokens"), P::constant("scale")}, "wide")
                  : P::constant("tokens");
  return P::op(OpCode::Gather, {table, P::argument("ids")}, "t");
}

static bool isLookup(const Match &m) {
  const Value *table = m.op("t")->operand(ops::Gather::X);
  return m.value("ids")->type.rank() == 2 && table->type.rank() == 2 &&
         isFloat(table->type.dtype) && m.op("t")->intAttr("axis") == 0 &&
         (!table->def()->is(OpCode::Dequantize) || m.value("scale")->type.rank() == 2);
}

static llvm::Expected<Value *> embed(const Match &m, Builder &b, llvm::ArrayRef<Value *> places) {
  llvm::SmallVector<Value *> operands{m.value("ids"), m.value("tokens")};
  llvm::append_range(operands, places);
  const Value *table = m.op("t")->operand(ops::Gather::X);
  if (!table->def()->is(OpCode::Dequantize))
    return b.value(OpCode::Embed, operands);
  operands.resize(ops::Embed::TokenScale);
  operands.push_back(m.value("scale"));
  return b.value(OpCode::Embed, operands, {{"dtype", Attr(table->type.dtype)}});
}

static std::vector<Rule> embedRules(bool bytes) {
  std::vector<Rule> rules;
  const P tokens = lookup(bytes);
  auto guard = [](const Match &m) {
    return isLookup(m) && m.value("positions")->type.rank() == 2 &&
           m.op("p")->intAttr("axis") == 0 && m.value("t")->hasOneUse();
  };
  rules.push_back(
      {"embed-past", "tokens[ids] + positions[past + s] = embed(ids, tokens, positions, past)",
       P::op(OpCode::Add,
             {tokens,
              P::op(OpCode::Gather,
                    {P::constant("positions"), P::op(OpCode::Positions, {P::any("past")})}, "p")}),
       guard, [](const Match &m, Builder &b) {
         return embed(m, b, {m.value("positions"), m.value("past")});
       }});
  rules.push_back(
      {"embed-ids",
       "tokens[ids] + positions[position_ids] = embed(ids, tokens, positions, none, position_ids)",
       P::op(OpCode::Add,
             {tokens,
              P::op(OpCode::Gather, {P::constant("positions"), P::argument("position_ids")}, "p")}),
       guard, [](const Match &m, Builder &b) {
         return embed(m, b, {m.value("positions"), nullptr, m.value("position_ids")});
       }});
  return rules;
}

/// Of a model without a table of positions: rotary embeddings take the place of it.
static std::vector<Rule> tokenRules(bool bytes) {
  return {{"embed-tokens", "tokens[ids] = embed(ids, tokens)", lookup(bytes), isLookup,
           [](const Match &m, Builder &b) { return embed(m, b, {}); }}};
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
    bool turns = llvm::any_of(f->ops(), [](auto &op) { return op->is(OpCode::Rope); });
    for (bool bytes : {false, true})
      for (auto &rules : {embedRules(bytes), turns ? tokenRules(bytes) : std::vector<Rule>()})
        if (auto n = applyRules(*f, rules); !n)
          return n.takeError();
  }
  return llvm::Error::success();
}

} // namespace gpt2c

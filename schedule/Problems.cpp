#include "schedule/Problems.h"

#include "schedule/products/Operands.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

LinearProblem Problems::linear(const Op &op) const {
  using enum ops::QuantizedLinear::Operand;
  const Value *x = op.operand(X), *w = op.operand(W);
  LinearShape s{scalarOf(x),
                scalarOf(w),
                scalarOf(op.result(0)),
                *w->type.shape[0].constant(),
                *w->type.shape[1].constant(),
                maximum(leading(x))};
  s.tf32 = options_.tf32 && s.x == Scalar::F32 && s.w == Scalar::F32 && s.k > 0 && s.k % 4 == 0;
  s.target = options_.target;
  s.batchInvariant = batchInvariant();
  if (!op.is(OpCode::Linear) && lastDim(op.operand(WScale)) > 1)
    s.wGroup = s.k / lastDim(op.operand(WScale));
  s.wZeros = op.is(OpCode::QuantizedLinear) && op.operand(WZero);
  if (!op.is(OpCode::Linear))
    s.xGroup = op.intAttr("x_group") == s.k ? 0 : op.intAttr("x_group");
  return s;
}

/// Whether the sums of its weights, times gain and shift, are known.
static bool hasNormSums(const Op &product, const Op &norm) {
  using enum ops::QuantizedLinear::Operand;
  using Norm = ops::LayerNorm;
  return isConstant(product.operand(W)) && isConstant(norm.operand(Norm::Scale)) &&
         (product.is(OpCode::Linear) || isConstant(product.operand(WScale))) &&
         (norm.is(OpCode::RmsNorm) || !norm.operand(Norm::Bias) ||
          isConstant(norm.operand(Norm::Bias)));
}

bool takesInt8Weights(const Op &product) {
  using enum ops::QuantizedLinear::Operand;
  return product.is(OpCode::QuantizedLinear) && isFloat(product.operand(X)->type.dtype) &&
         !product.operand(XScale);
}

Op *Problems::normBefore(const Op &product) const {
  Op *norm = product.operand(ops::Linear::X)->def();
  const bool floats = product.is(OpCode::Linear) || takesInt8Weights(product);
  return floats && options_.fuseNorm && !batchInvariant() && norm && isNorm(*norm) &&
                 isRowNorm(*norm) &&
                 norm->operand(ops::LayerNorm::X)->type.dtype == norm->result()->type.dtype &&
                 product.operand(ops::Linear::W)->type.isStatic()
             ? norm
             : nullptr;
}

Op *Problems::onlyReader(const Op &product) const {
  const Value *y = product.result(0);
  const bool floats =
      product.is(OpCode::Linear) || (takesInt8Weights(product) && product.intAttr("x_group") < 0);
  // Where it pays depends on the number of rows: in a batch-invariant plan each version would
  // choose by itself.
  if (batchInvariant() || !y->hasOneUse() || !floats || residualOf(product) ||
      !hasKernelTypes(product) || product.stringAttr("activation") != "none" ||
      !product.operand(ops::Linear::W)->type.isStatic())
    return nullptr;
  return y->uses()[0].op;
}

/// What `v` is stored as.
static const Value *stored(const Value *v) {
  while (v->def() && isView(*v->def()))
    v = v->def()->operand(0);
  return v;
}

/// Whether the index of the largest element of each row is asked for.
static bool hasGreedyChoice(const Value *v) {
  return llvm::any_of(v->uses(), [](const Use &u) {
    return keepsRows(*u.op) ? hasGreedyChoice(u.op->result()) : u.op->is(OpCode::ArgMax);
  });
}

ProductSite Problems::site(const Op &product, llvm::ArrayRef<const ProductEnd *> ends,
                           const KnownStatistics &known) const {
  ProductSite s{.own = linear(product), .norm = normBefore(product)};
  s.choice = hasGreedyChoice(product.result(0));
  if (s.norm) {
    const auto left = known.find(stored(s.norm->operand(ops::LayerNorm::X)));
    s.statistics = left == known.end() ? nullptr : &left->second;
    s.normed.norm = normOf(*s.norm);
    s.normed.gain = scalarOf(s.norm->operand(ops::LayerNorm::Scale));
    s.normed.plainNorm = isFoldedNorm(*s.norm);
    s.normed.normSums = hasNormSums(product, *s.norm);
  }
  Op *reader = onlyReader(product);
  for (const ProductEnd *form : ends)
    if (reader && form->fits(*reader, product)) {
      s.end = reader;
      s.form = form;
      s.normOfEnd = s.own.rows <= form->normRows;
    }
  return s;
}

/// The second of two products with constant weights of which the first has no other use; null: it
/// is no such first product.
static Op *outputOf(const Op &hidden) {
  using enum ops::Linear::Operand;
  const auto uses = hidden.result()->uses();
  if (uses.size() != 1 || uses[0].operand != X || !uses[0].op->is(OpCode::Linear))
    return nullptr;
  Op *output = uses[0].op;
  return isConstant(hidden.operand(W)) && isConstant(output->operand(W)) ? output : nullptr;
}

MlpSite Problems::mlp(const Op &hidden) const {
  Op *output = batchInvariant() || !hidden.is(OpCode::Linear) ? nullptr : outputOf(hidden);
  if (!output || !hasKernelTypes(*output))
    return {};
  return {output, linear(*output)};
}

Value *lengthOf(const Op &op) {
  return op.is(OpCode::AppendAttention) ? op.operand(ops::AppendAttention::Length)
         : op.is(OpCode::QuantizedAppendAttention)
             ? op.operand(ops::QuantizedAppendAttention::Length)
             : nullptr;
}

std::optional<int64_t> kvHeadsOf(const Op &op) {
  if (auto heads = op.operand(ops::AppendAttention::Kv)->type.shape[3].constant())
    return heads;
  auto packed = op.operand(ops::AppendAttention::Qkv)->type.shape.back().constant();
  const int64_t heads = op.intAttr("num_heads");
  if (!packed)
    return std::nullopt;
  return (*packed / (lastDim(op.result(ops::AppendAttention::Y)) / heads) - heads) / 2;
}

AttentionProblem Problems::attention(const Op &op) const {
  using enum ops::AppendAttention::Operand;
  const Value *kv = op.operand(Kv), *qkv = op.operand(Qkv);
  AttentionProblem p;
  AttentionConfig &c = p.config;
  c.x = scalarOf(qkv);
  c.kv = scalarOf(kv);
  c.heads = op.intAttr("num_heads");
  c.headDim = lastDim(op.result(ops::AppendAttention::Y)) / c.heads;
  c.kvHeads = int(kvHeadsOf(op).value_or(c.heads));
  c.mask = op.operand(KeyMask) != nullptr;
  c.last = lengthOf(op) != nullptr;
  c.window = int(std::min<int64_t>(op.intAttr("window"), INT32_MAX));
  c.softCap = float(op.floatAttr("soft_cap"));
  c.pageTokens = options_.pageTokens;
  p.sequences = maximum(qkv->type.shape[0]);
  p.queries = c.last ? 1 : maximum(qkv->type.shape[1]);
  p.context = maximum(kv->type.shape[4]);
  p.tf32 = options_.tf32;
  p.target = options_.target;
  c.prefixes = options_.prefixes && c.pageTokens > 0 && !p.hasOddPages() && p.isNarrow() &&
               p.sequences > 1 && p.queries == 1 && c.causal && c.window == 0 && c.softCap == 0 &&
               !c.alibi;
  p.complete();
  return p;
}

const Op *stateAttention(const Op &op, bool behind) {
  using enum ops::AppendAttention::Operand;
  bool counts = !behind;
  for (const auto &other : op.function()->ops()) {
    counts |= other.get() == &op;
    if (counts && other->is(OpCode::AppendAttention) &&
        other->operand(Kv)->type.dtype == DType::F16 && other->operand(Past) &&
        other->operand(Kv)->type.shape[3] == Dim(other->intAttr("num_heads")))
      return other.get();
  }
  return nullptr;
}

std::pair<int, int> headsOf(const Op &attention) {
  const int heads = attention.intAttr("num_heads");
  return {heads, int(lastDim(attention.result(ops::AppendAttention::Y))) / heads};
}

} // namespace gpt2c

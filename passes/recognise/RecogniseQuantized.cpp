// recognise-quantized: how the model quantises itself, in one form whatever its exporter wrote.
// 1. A product of integers that is scaled afterwards becomes one of dequantised values:
//      cast((qa - za)(qb - zb)) (sa sb) = dequantised(qa, sa, za) dequantised(qb, sb, zb)
//    and a dequantised copy a copy of what is dequantised.
// 2. Activations that are quantised and dequantised again keep that in front of products with
//    weights only (--imported-activations).
// 3. Weights of products become dequantize(q, s, z), with a scale for each output channel or each
//    block of it, which `linear` takes, or floating point. Numbers that four bits hold are in four.
//    Tables of tokens become the same in bytes, without zero points.
//
// Termination of the rules: each removes a product of integers or moves a dequantize towards the
// arguments.
#include "ir/Executor.h"
#include "passes/Rewrite.h"
#include "passes/recognise/QuantizedWeights.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

using P = Pattern;

//===-- products of integers ------------------------------------------------------------------===//

namespace {

/// v = q - zero; `zero` null: 0.
struct Integers {
  Value *q = nullptr, *zero = nullptr;
  explicit operator bool() const { return q; }
};

struct Scales {
  Value *a = nullptr, *b = nullptr; // null: 1
};

} // namespace

static bool isByte(const Value *v) {
  return v->type.dtype == DType::I8 || v->type.dtype == DType::U8;
}

static bool isOne(const Value *v) { return elementCount(v->type.shape) == Dim(1); }

static Value *castByte(Value *v) {
  return v->def() && v->def()->is(OpCode::Cast) && isByte(v->def()->operand(0))
             ? v->def()->operand(0)
             : nullptr;
}

/// Whether every element lies from `least` to `most`.
static bool isWithin(const Tensor &t, int64_t least, int64_t most) {
  for (int64_t i = 0; i < t.count(); ++i)
    if (t.asInt(i) < least || t.asInt(i) > most)
      return false;
  return true;
}

/// Whether a constant zero point is one of the type that it is taken from. One in the type of the
/// elements may be computed.
static bool zeroFits(const Integers &i) {
  const Op *c = i.zero ? constantOp(i.zero) : nullptr;
  DType dtype = i.q->type.dtype;
  if (!c || c->result()->type.dtype == dtype || dtype == DType::I32)
    return true;
  return c->constant.valid() && isWithin(c->constant, dtype == DType::I8 ? INT8_MIN : 0,
                                         dtype == DType::I8 ? INT8_MAX : UINT8_MAX);
}

/// Sums of so many products of differences of bytes do not overflow an i32.
static bool sumsFit(const Value *a) {
  auto length = a->type.shape.back().constant();
  return length && *length <= INT32_MAX / (UINT8_MAX * UINT8_MAX);
}

static Integers integersOf(Value *v) {
  if (const Op *c = constantOp(v); c && c->constant.valid()) {
    bool differences = isByte(v) || isWithin(c->constant, -UINT8_MAX, UINT8_MAX);
    return differences ? Integers{v} : Integers();
  }
  if (Value *q = castByte(v))
    return {q};
  Op *sub = v->def();
  if (!sub || !sub->is(OpCode::Sub))
    return {};
  Integers i{castByte(sub->operand(ops::Sub::A)), castByte(sub->operand(ops::Sub::B))};
  if (!i.zero && constantOp(sub->operand(ops::Sub::B)))
    i.zero = sub->operand(ops::Sub::B);
  return i.zero ? i : Integers();
}

/// One scale for A, and one for B or a vector for its columns, of which `s` is the product.
static std::optional<Scales> scalesOf(Value *s, const Dim &columns) {
  Scales scales;
  Op *mul = s->def();
  if (mul && mul->is(OpCode::Mul)) {
    bool swapped = !isOne(mul->operand(0)) || constantOp(mul->operand(0));
    scales = {mul->operand(swapped), mul->operand(!swapped)};
  } else {
    (isOne(s) ? scales.a : scales.b) = s;
  }
  auto fits = [&](Value *v) {
    return !v || isOne(v) ||
           (v->type.shape.back() == columns && elementCount(v->type.shape) == columns);
  };
  if ((scales.a && !isOne(scales.a)) || !fits(scales.b))
    return std::nullopt;
  return scales;
}

/// dequantised `i`, whose scale has one element or one for each column.
static llvm::Expected<Value *> dequantised(const Integers &i, Value *scale, Builder &b) {
  DType dtype = i.q->type.dtype;
  Value *zero = i.zero ? i.zero : b.constant(Tensor::zeros(dtype, {}));
  if (zero->type.dtype != dtype)
    zero = b.constant(constantOp(zero)->constant.cast(dtype));
  if (!scale)
    scale = b.constant(Tensor::scalar(1.0F));
  unsigned rank = isOne(scale) ? 0 : 1;
  if (scale->type.rank() != rank) {
    if (const Op *c = constantOp(scale); c && c->constant.valid()) {
      llvm::SmallVector<int64_t, 1> shape(rank, c->constant.count());
      return dequantised(i, b.constant(c->constant.reshaped(shape)), b);
    }
    Dims shape(rank, elementCount(scale->type.shape));
    auto flat = b.value(OpCode::Reshape, {scale}, {{"shape", shape}});
    if (!flat)
      return flat.takeError();
    scale = *flat;
  }
  return b.value(OpCode::AffineDequantize, {i.q, scale, zero});
}

static std::vector<Rule> productRules() {
  std::vector<Rule> rules;
  rules.push_back(
      {"scaled-integer-product",
       "cast((qa - za)(qb - zb)) (sa sb) = dequantised(qa, sa, za) dequantised(qb, "
       "sb, zb)",
       P::op(OpCode::Mul,
             {P::op(OpCode::Cast, {P::op(OpCode::MatMul, {P::any("a"), P::any("b")}, "y")}),
              P::any("s")}),
       [](const Match &m) {
         const Type &y = m.value("y")->type;
         Integers a = integersOf(m.value("a")), b = integersOf(m.value("b"));
         return y.dtype == DType::I32 && m.root()->result()->type.dtype == DType::F32 && a && b &&
                (!a.zero || isOne(a.zero)) && zeroFits(a) && zeroFits(b) && sumsFit(m.value("a")) &&
                y.rank() > 0 && scalesOf(m.value("s"), y.shape.back());
       },
       [](const Match &m, Builder &b) -> llvm::Expected<Value *> {
         Scales s = *scalesOf(m.value("s"), m.value("y")->type.shape.back());
         auto x = dequantised(integersOf(m.value("a")), s.a, b);
         if (!x)
           return x.takeError();
         auto w = dequantised(integersOf(m.value("b")), s.b, b);
         if (!w)
           return w.takeError();
         return b.value(OpCode::MatMul, {*x, *w});
       }});
  for (OpCode code : {OpCode::Reshape, OpCode::Transpose, OpCode::Slice, OpCode::Expand})
    rules.push_back({"dequantised-copy", "dequantised(copy(q)) = copy(dequantised(q))",
                     P::op(OpCode::AffineDequantize,
                           {P::op(code, {P::any("q")}, "copy"), P::any("s"), P::any("z")}),
                     [](const Match &m) {
                       return m.value("s")->type.rank() == 0 && m.value("z")->type.rank() == 0;
                     },
                     [](const Match &m, Builder &b) -> llvm::Expected<Value *> {
                       auto x = b.value(OpCode::AffineDequantize,
                                        {m.value("q"), m.value("s"), m.value("z")},
                                        m.root()->givenAttrs());
                       if (!x)
                         return x.takeError();
                       return b.value(m.op("copy")->code(), {*x}, m.op("copy")->givenAttrs());
                     }});
  return rules;
}

//===-- activations ---------------------------------------------------------------------------===//

static bool sameValue(const Value *a, const Value *b) {
  const Op *x = constantOp(a), *y = constantOp(b);
  return a == b || (x && y && x->constant.valid() && y->constant.valid() && a->type == b->type &&
                    x->constant.byteArray() == y->constant.byteArray());
}

/// The affine_quantize whose result `dequantize` turns back; null when it is another's.
static Op *quantiserOf(const Op &dequantize) {
  Op *q = dequantize.operand(ops::AffineDequantize::Q)->def();
  bool pair = q && q->is(OpCode::AffineQuantize) &&
              sameValue(q->operand(ops::AffineQuantize::Scale),
                        dequantize.operand(ops::AffineDequantize::Scale)) &&
              sameValue(q->operand(ops::AffineQuantize::ZeroPoint),
                        dequantize.operand(ops::AffineDequantize::ZeroPoint)) &&
              q->operand(ops::AffineQuantize::X)->type == dequantize.result()->type;
  return pair ? q : nullptr;
}

/// Whether the value goes, perhaps copied, into products with weights only.
static bool isForProduct(const Use &u) {
  if (u.op->is(OpCode::MatMul)) {
    const Value *w = u.op->operand(ops::MatMul::B);
    if (w->def() && w->def()->is(OpCode::Transpose))
      w = w->def()->operand(0);
    bool weight =
        constantOp(w) || dequantizeOf(w) || (w->def() && w->def()->is(OpCode::Dequantize));
    return u.operand == ops::MatMul::A && weight;
  }
  return u.op->info().has(DataMovement) && u.operand == 0 && u.op->hasUses() &&
         llvm::all_of(u.op->result()->uses(), isForProduct);
}

static void leaveOut(PassContext &ctx, Function &f) {
  ImportedActivations kept = ctx.options().quantize.imported;
  llvm::SmallVector<Op *> left, dynamic;
  for (auto &op : f.ops()) {
    Op *q = op->is(OpCode::AffineDequantize) ? quantiserOf(*op) : nullptr;
    if (!q)
      continue;
    llvm::SmallVector<Use> uses(op->result()->uses());
    llvm::erase_if(uses, [&](const Use &u) {
      return kept == ImportedActivations::All ||
             (kept == ImportedActivations::Products && isForProduct(u));
    });
    for (const Use &u : uses)
      u.op->setOperand(u.operand, q->operand(ops::AffineQuantize::X));
    if (!uses.empty())
      left.push_back(q);
    if (op->hasUses() && !constantOp(op->operand(ops::AffineDequantize::Scale)))
      dynamic.push_back(q);
  }
  auto note = [&](llvm::ArrayRef<Op *> ops, const llvm::Twine &message) {
    llvm::SmallVector<llvm::StringRef> nodes;
    for (const Op *op : ops)
      nodes.append(op->locations.begin(), op->locations.end());
    if (!ops.empty())
      ctx.note(message, nodes).of("quantised activations");
  };
  auto count = [](llvm::ArrayRef<Op *> ops) {
    return std::to_string(ops.size()) + (ops.size() == 1 ? " activation" : " activations");
  };
  note(left,
       "what the model quantises " +
           llvm::Twine(kept == ImportedActivations::Products ? "and no product with weights reads "
                                                             : "") +
           "keeps the precision of the plan, " + count(left) +
           "; --imported-activations=all quantises it, and fuses nothing across it");
  note(dynamic, "the model takes one scale for all tokens from all tokens, for " + count(dynamic) +
                    ": no token can be computed by itself, and there is no KV state; "
                    "--imported-activations=none leaves that out");
}

//===-- weights -------------------------------------------------------------------------------===//

static llvm::Error giveWeights(PassContext &ctx, Function &f, Op *product) {
  const Value *w = product->operand(ops::MatMul::B);
  const Op *transpose = w->def();
  const bool transposed = transpose && transpose->is(OpCode::Transpose) &&
                          transpose->intsAttr("perm") == std::vector<int64_t>{1, 0};
  if (transposed)
    w = transpose->operand(0);
  const Op *dequantize = dequantizeOf(w);
  if (!dequantize || w->type.rank() != 2)
    return llvm::Error::success();
  Obstacle why;
  const auto stored = storedWeights(w, transposed, why);
  const std::string &name = dequantize->operand(ops::AffineDequantize::Q)->name;
  if (!stored) {
    const Tensor &q = constantOp(dequantize->operand(ops::AffineDequantize::Q))->constant;
    Remark &remark =
        ctx.missed("int8: the weight " + (name.empty() ? "" : name + " ") + "of " +
                       product->describe() + " becomes floating point, since " + why.reason,
                   product->locations);
    remark.of("int8").after("a dequantised weight").stoppedBy(why);
    remark.bytes = storedBytes(DType::F32, q.count()) - int64_t(q.bytes());
    return llvm::Error::success();
  }
  Builder b(f, product);
  b.setLocations(dequantize->locations);
  Value *q = b.constant(stored->q), *scale = b.constant(stored->scale),
        *zero = stored->zero.valid() ? b.constant(stored->zero) : nullptr;
  auto wide =
      b.value(OpCode::Dequantize, {q, scale, zero}, {{"dtype", dequantize->result()->type.dtype}});
  if (!wide)
    return wide.takeError();
  q->name = (*wide)->name = name;
  auto t = b.value(OpCode::Transpose, {*wide}, {{"perm", Dims{1, 0}}});
  if (!t)
    return t.takeError();
  product->setOperand(ops::MatMul::B, *t);
  return llvm::Error::success();
}

/// A table of tokens, with a scale for each row or block of it, as bytes.
static llvm::Error giveTable(Function &f, Op *gather) {
  const Value *table = gather->operand(ops::Gather::X);
  const Op *dequantize = dequantizeOf(table);
  if (!dequantize || !isTokenLookup(*gather))
    return llvm::Error::success();
  const auto stored = storedTable(table);
  if (!stored)
    return llvm::Error::success();
  Builder b(f, gather);
  b.setLocations(dequantize->locations);
  Value *q = b.constant(stored->q), *scale = b.constant(stored->scale);
  auto wide =
      b.value(OpCode::Dequantize, {q, scale}, {{"dtype", dequantize->result()->type.dtype}});
  if (!wide)
    return wide.takeError();
  q->name = (*wide)->name = dequantize->operand(ops::AffineDequantize::Q)->name;
  gather->setOperand(ops::Gather::X, *wide);
  return llvm::Error::success();
}

/// Weights that products do not take as they are stored.
static llvm::Error widenConstants(Function &f) {
  for (auto &op : f.ops()) {
    if (!op->is(OpCode::AffineDequantize) || !op->hasUses() || !dequantizeOf(op->result()))
      continue;
    llvm::SmallVector<Tensor> inputs;
    for (Value *v : op->operands())
      inputs.push_back(constantOp(v)->constant);
    auto outputs = evaluateOp(*op, inputs, {});
    if (!outputs)
      return outputs.takeError();
    auto replace = [&](Op &by, const Tensor &t) {
      Builder b(f, &by);
      b.setLocations(op->locations);
      Value *c = b.constant(t);
      c->name = op->operand(ops::AffineDequantize::Q)->name;
      by.result()->replaceAllUsesWith(c);
    };
    for (const Use &u : llvm::SmallVector<Use>(op->result()->uses()))
      if (u.op->is(OpCode::Reshape) && u.op->result()->type.isStatic()) {
        llvm::SmallVector<int64_t> shape;
        for (const Dim &d : u.op->result()->type.shape)
          shape.push_back(*d.constant());
        replace(*u.op, (*outputs)[0].reshaped(shape));
      }
    replace(*op, (*outputs)[0]);
  }
  return llvm::Error::success();
}

llvm::Error recogniseQuantized(PassContext &ctx) {
  for (auto &f : ctx.module().functions) {
    auto n = applyRules(*f, productRules());
    if (!n)
      return n.takeError();
    leaveOut(ctx, *f);
    llvm::SmallVector<Op *> products, lookups;
    for (auto &op : f->ops())
      if (op->is(OpCode::MatMul))
        products.push_back(op.get());
      else if (op->is(OpCode::Gather))
        lookups.push_back(op.get());
    for (Op *lookup : lookups)
      if (llvm::Error e = giveTable(*f, lookup))
        return e;
    for (Op *product : products) {
      if (product->result()->type.dtype == DType::I32)
        ctx.missed("int8: " + product->describe() +
                       " multiplies integers that no scale behind it makes dequantised bytes; "
                       "they are multiplied in i32",
                   product->locations)
            .of("int8")
            .costing({product});
      if (llvm::Error e = giveWeights(ctx, *f, product))
        return e;
    }
    f->eraseDeadOps();
    if (llvm::Error e = widenConstants(*f))
      return e;
    f->eraseDeadOps();
  }
  return llvm::Error::success();
}

} // namespace gpt2c

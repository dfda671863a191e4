// lower-precision: every floating-point constant, argument and result takes the element type asked
// for (f32 also raises an f16 export). Sums, softmax and norms stay in single precision inside the
// ops; logits leave as f32, and so stay the scales of int8 values.
#include "passes/Rewrite.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

using P = Pattern;

static std::vector<Rule> castRules() {
  std::vector<Rule> rules;
  auto linear = [](std::vector<Pattern> operands) {
    return P::op(OpCode::Linear, std::move(operands), "l");
  };
  rules.push_back(
      {"cast-of-linear", "cast(linear(x), t) = linear(x){dtype = t}",
       P::op(OpCode::Cast, {P::oneOf({linear({P::any("x"), P::any("w")}),
                                      linear({P::any("x"), P::any("w"), P::any("b")})})}),
       [](const Match &m) {
         return m.value("l")->hasOneUse() && m.root()->dtypeAttr("to") == DType::F32;
       },
       [](const Match &m, Builder &b) -> llvm::Expected<Value *> {
         auto y = b.value(OpCode::Linear, m.op("l")->operands(), m.op("l")->givenAttrs());
         if (!y)
           return y.takeError();
         (*y)->def()->setAttr("dtype", DType::F32);
         if (llvm::Error e = inferOp(*(*y)->def()))
           return e;
         return *y;
       }});
  rules.push_back({"cast-above-reshape", "cast(reshape(x), t) = reshape(cast(x, t))",
                   P::op(OpCode::Cast, {P::op(OpCode::Reshape, {P::any("x")}, "r")}),
                   [](const Match &m) { return m.value("r")->hasOneUse(); },
                   [](const Match &m, Builder &b) -> llvm::Expected<Value *> {
                     auto y = b.value(OpCode::Cast, {m.value("x")}, m.root()->givenAttrs());
                     if (!y)
                       return y.takeError();
                     return b.value(OpCode::Reshape, {*y}, m.op("r")->givenAttrs());
                   }});
  rules.push_back(
      {"cast-to-same", "cast(x, dtype(x)) = x", P::op(OpCode::Cast, {P::any("x")}),
       [](const Match &m) { return m.value("x")->type == m.root()->result()->type; },
       [](const Match &m, Builder &) -> llvm::Expected<Value *> { return m.value("x"); }});
  return rules;
}

/// Whether an op takes `v` in single precision only.
static bool staysSingle(const Value &v) {
  return llvm::any_of(v.uses(), [](const Use &u) {
    llvm::ArrayRef<OperandSpec> specs = u.op->info().operands;
    return u.operand < specs.size() && specs[u.operand].single;
  });
}

static llvm::Error lower(Function &f, DType to, llvm::DenseMap<const void *, Tensor> &converted) {
  for (unsigned i = 0; i < f.numArguments(); ++i)
    if (isFloat(f.argument(i)->type.dtype) && !staysSingle(*f.argument(i)))
      f.argument(i)->type.dtype = to;
  for (auto &op : f.ops()) {
    if (op->is(OpCode::Constant) && isFloat(op->constant.dtype()) && op->constant.valid() &&
        op->constant.dtype() != to && !staysSingle(*op->result())) {
      Tensor &t = converted[op->constant.raw()];
      if (!t.valid() || t.shape() != op->constant.shape())
        t = op->constant.cast(to);
      op->constant = t;
    }
    for (const AttrSpec &spec : op->info().attrs)
      if (spec.kind == AttrKind::DType)
        if (const Attr *a = op->attr(spec.name); a && isFloat(std::get<DType>(*a)))
          op->setAttr(spec.name, to);
  }
  if (llvm::Error e = f.inferTypes())
    return e;
  for (auto [i, name] : llvm::enumerate(f.resultNames)) {
    Value *v = f.terminator()->operand(i);
    if (name != "logits" || v->type.dtype == DType::F32)
      continue;
    Value *source = v;
    while (source->def() && source->def()->is(OpCode::Reshape) && source->hasOneUse())
      source = source->def()->operand(0);
    if (source->def() && source->def()->is(OpCode::QuantizedLinear)) {
      source->def()->setAttr("dtype", DType::F32);
      continue;
    }
    // Every use of the logits sees them in f32, the greedy choice too.
    llvm::SmallVector<Use> uses(v->uses());
    Builder b(f, f.next(v->def()));
    b.setLocations(v->def()->locations);
    auto wide = b.value(OpCode::Cast, {v}, {{"to", DType::F32}});
    if (!wide)
      return wide.takeError();
    for (const Use &u : uses)
      u.op->setOperand(u.operand, *wide);
  }
  auto n = applyRules(f, castRules());
  if (!n)
    return n.takeError();
  return f.inferTypes();
}

llvm::Error lowerPrecision(PassContext &ctx) {
  llvm::DenseMap<const void *, Tensor> converted; // functions share constants, before and after
  for (auto &f : ctx.module().functions)
    if (llvm::Error e = lower(*f, ctx.options().precision, converted))
      return e;
  return llvm::Error::success();
}

} // namespace gpt2c

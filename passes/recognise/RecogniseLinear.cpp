// recognise-linear: y = x w^T + b with a constant w becomes one op with w packed as [out, in];
// w may be dequantised.
//
// Termination: every rule removes a matmul or an add.
#include "ir/Executor.h"
#include "passes/Rewrite.h"

namespace gpt2c {

using P = Pattern;

/// w[K, N] -> w^T[N, K] as a constant. A transpose of a constant gives that constant back.
static llvm::Expected<Value *> packed(Value *w, Builder &b) {
  if (w->def()->is(OpCode::Transpose))
    return w->def()->operand(0);
  auto t = b.create(OpCode::Transpose, {w}, {{"perm", Dims{1, 0}}});
  if (!t)
    return t.takeError();
  auto data = evaluateOp(**t, {constantOp(w)->constant}, {});
  if (!data)
    return data.takeError();
  Value *c = b.constant((*data)[0]);
  c->name = w->name;
  return c;
}

static bool isPlain(const Op &linear) {
  return linear.stringAttr("activation") == "none" && !linear.hasAttr("dtype") &&
         !linear.operand(ops::Linear::Residual);
}

/// A bias of `result`: one element per column, whatever ones stand in front.
static bool isVectorOf(const Value *bias, const Value *result) {
  const Shape &s = bias->type.shape;
  if (bias->type.dtype != result->type.dtype || s.empty() || s.back() != result->type.shape.back())
    return false;
  return elementCount(s) == s.back() && constantOp(bias)->constant.valid();
}

/// The bias as a vector [N], whatever ones stand in front.
static llvm::Expected<Value *> asVector(Value *bias, Builder &b) {
  if (bias->type.rank() == 1)
    return bias;
  Tensor t = constantOp(bias)->constant;
  Value *c = b.constant(t.reshaped({t.count()}));
  c->name = bias->name;
  return c;
}

static std::vector<Rule> linearRules() {
  std::vector<Rule> rules;
  auto stored = P::op(OpCode::Dequantize, {P::constant("q"), P::constant("s")});
  auto withZeros =
      P::op(OpCode::Dequantize, {P::constant("q"), P::constant("s"), P::constant("z")});
  auto transposed =
      P::op(OpCode::Transpose, {P::oneOf({P::constant("t"), stored, withZeros})}, "w");
  rules.push_back({"matmul-constant", "x w = linear(x, w^T)",
                   P::op(OpCode::MatMul, {P::any("x"), P::oneOf({P::constant("w"), transposed})}),
                   [](const Match &m) {
                     Op *w = m.op("w");
                     bool known = w->is(OpCode::Transpose)
                                      ? w->intsAttr("perm") == std::vector<int64_t>{1, 0}
                                      : w->constant.valid();
                     return known && m.value("w")->type.rank() == 2 &&
                            m.value("x")->type.rank() >= 1 && isFloat(m.value("x")->type.dtype) &&
                            !constantOp(m.value("x"));
                   },
                   [](const Match &m, Builder &b) -> llvm::Expected<Value *> {
                     auto w = packed(m.value("w"), b);
                     if (!w)
                       return w.takeError();
                     return b.value(OpCode::Linear, {m.value("x"), *w});
                   }});
  auto plain = P::op(OpCode::Linear, {P::any("x"), P::any("w")});
  rules.push_back({"linear-bias", "linear(x, w) + b = linear(x, w, b)",
                   P::op(OpCode::Add, {plain, P::constant("bias")}),
                   [](const Match &m) {
                     Value *linear = m.ops[1]->result();
                     return isVectorOf(m.value("bias"), linear) && linear->hasOneUse() &&
                            linear->type == m.root()->result()->type && isPlain(*m.ops[1]);
                   },
                   [](const Match &m, Builder &b) -> llvm::Expected<Value *> {
                     auto bias = asVector(m.value("bias"), b);
                     if (!bias)
                       return bias.takeError();
                     return b.value(OpCode::Linear, {m.value("x"), m.value("w"), *bias});
                   }});
  rules.push_back(
      {"bias-after-residual", "(linear(x, w) + r) + b = linear(x, w, b) + r",
       P::op(OpCode::Add, {P::op(OpCode::Add, {plain, P::any("r")}, "sum"), P::constant("bias")}),
       [](const Match &m) {
         Op *linear = m.ops[2];
         return isVectorOf(m.value("bias"), m.root()->result()) && m.value("sum")->hasOneUse() &&
                linear->result()->hasOneUse() && !constantOp(m.value("r")) &&
                linear->result()->type == m.root()->result()->type && isPlain(*linear);
       },
       [](const Match &m, Builder &b) -> llvm::Expected<Value *> {
         auto bias = asVector(m.value("bias"), b);
         if (!bias)
           return bias.takeError();
         auto linear = b.value(OpCode::Linear, {m.value("x"), m.value("w"), *bias});
         if (!linear)
           return linear.takeError();
         return b.value(OpCode::Add, {*linear, m.value("r")});
       }});
  return rules;
}

llvm::Error recogniseLinear(PassContext &ctx) {
  for (auto &f : ctx.module().functions) {
    auto n = applyRules(*f, linearRules());
    if (!n)
      return n.takeError();
  }
  return llvm::Error::success();
}

} // namespace gpt2c

// fold-scalars: scalars behind a product or a table of tokens (residual, logit and embedding
// multipliers) move into weights that nothing else reads. In f32 alone: in fewer bits the weights
// would be rounded a second time.
//
// Termination: every rule removes a mul or a div.
#include "passes/Rewrite.h"

#include <cmath>

namespace gpt2c {

using P = Pattern;

/// A constant times c, in f32 and read by nothing else; null where it is none.
static Value *scaled(Value *v, double c, Builder &b) {
  const Op *constant = constantOp(v);
  if (!constant || !constant->constant.valid() || v->type.dtype != DType::F32 || !v->hasOneUse())
    return nullptr;
  Tensor t(DType::F32, constant->constant.shape());
  for (int64_t i = 0; i < t.count(); ++i)
    t.data<float>()[i] = float(constant->constant.data<float>()[i] * c);
  Value *y = b.constant(t);
  y->name = v->name;
  return y;
}

/// The same of weights, which may be int8 that is dequantised.
static llvm::Expected<Value *> scaledWeights(Value *w, double c, Builder &b) {
  const Op *def = w->def();
  if (!def || !def->is(OpCode::Dequantize))
    return scaled(w, c, b);
  Value *scale = w->hasOneUse() ? scaled(def->operand(ops::Dequantize::Scale), c, b) : nullptr;
  if (!scale)
    return nullptr;
  return b.value(OpCode::Dequantize,
                 {def->operand(ops::Dequantize::Q), scale, def->operand(ops::Dequantize::Zero)},
                 def->givenAttrs());
}

/// Whether `v` is read by the root alone, and its scalar is one that weights can take.
static bool takesScalar(const Match &m, const Value *v) {
  const double c = m.scalar("c");
  return v->hasOneUse() && v->type == m.root()->result()->type && std::isfinite(c) &&
         std::isfinite(1 / c);
}

static double factorOf(const Match &m) {
  return m.root()->is(OpCode::Mul) ? m.scalar("c") : 1 / m.scalar("c");
}

static std::vector<Rule> scalarRules() {
  std::vector<Rule> rules;
  for (OpCode code : {OpCode::Mul, OpCode::Div}) {
    rules.push_back({"linear-times-scalar", "c linear(x, w, b) = linear(x, c w, c b)",
                     P::op(code, {P::any("l"), P::scalar("c")}),
                     [](const Match &m) {
                       const Op *l = m.op("l");
                       return l && l->is(OpCode::Linear) && !l->operand(ops::Linear::Residual) &&
                              l->stringAttr("activation") == "none" && takesScalar(m, m.value("l"));
                     },
                     [](const Match &m, Builder &b) -> llvm::Expected<Value *> {
                       using enum ops::Linear::Operand;
                       Op *l = m.op("l");
                       Value *bias =
                           l->operand(Bias) ? scaled(l->operand(Bias), factorOf(m), b) : nullptr;
                       if (bool(bias) != bool(l->operand(Bias)))
                         return nullptr;
                       auto w = scaledWeights(l->operand(W), factorOf(m), b);
                       if (!w || !*w)
                         return w;
                       auto y = b.value(OpCode::Linear, {l->operand(X), *w, bias}, l->givenAttrs());
                       if (y)
                         (*y)->def()->addLocations(l->locations);
                       return y;
                     }});
    rules.push_back(
        {"table-times-scalar", "c table[ids] = (c table)[ids]",
         P::op(code, {P::op(OpCode::Gather, {P::constant("table"), P::any("ids")}, "rows"),
                      P::scalar("c")}),
         [](const Match &m) { return takesScalar(m, m.value("rows")); },
         [](const Match &m, Builder &b) -> llvm::Expected<Value *> {
           Value *table = scaled(m.value("table"), factorOf(m), b);
           if (!table)
             return nullptr;
           return b.value(OpCode::Gather, {table, m.value("ids")}, m.op("rows")->givenAttrs());
         }});
  }
  return rules;
}

llvm::Error foldScalars(PassContext &ctx) {
  for (auto &f : ctx.module().functions)
    if (auto n = applyRules(*f, scalarRules()); !n)
      return n.takeError();
  return llvm::Error::success();
}

} // namespace gpt2c

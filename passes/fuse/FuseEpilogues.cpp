// fuse-epilogues: what follows a linear element by element is done where the product is still in
// registers. Two products of which one gates the other are one, with gated behind it.
//
// Termination: every rule removes an activation, a mul, a pow or an add.
#include "ir/Activations.h"
#include "passes/fuse/MergedProduct.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

using P = Pattern;

static bool isPlainLinear(const Op &op) {
  return op.stringAttr("activation") == "none" && !op.hasAttr("dtype") &&
         !op.operand(ops::Linear::Residual);
}

/// Whether the factors of a root are one product with ReLU, or it and an exponent of 2, and nobody
/// else reads it.
static bool squaresRelu(const Match &m) {
  const Op *l = m.op("l");
  return l && l->is(OpCode::Linear) && l->stringAttr("activation") == "relu" &&
         !l->hasAttr("dtype") && !l->operand(ops::Linear::Residual) &&
         llvm::all_of(l->result()->uses(), [&](const Use &u) { return u.op == m.root(); });
}

static std::vector<Rule> epilogueRules() {
  std::vector<Rule> rules;
  for (OpCode code : activationOps())
    rules.push_back(
        {"linear-activation", "f(linear(x, w, b)) = linear(x, w, b){activation = f}",
         P::op(code,
               {P::oneOf({P::op(OpCode::Linear, {P::any("x"), P::any("w")}, "l"),
                          P::op(OpCode::Linear, {P::any("x"), P::any("w"), P::any("b")}, "l")})}),
         [](const Match &m) { return isPlainLinear(*m.op("l")) && m.value("l")->hasOneUse(); },
         [](const Match &m, Builder &b) {
           return b.value(OpCode::Linear, m.op("l")->operands(),
                          {{"activation", infoOf(*activationOf(*m.root())).name.str()}});
         }});
  auto squared = [](const Match &m, Builder &b) {
    auto y = b.value(OpCode::Linear, m.op("l")->operands(),
                     {{"activation", infoOf(Activation::ReluSquared).name.str()}});
    if (y)
      (*y)->def()->addLocations(m.op("l")->locations);
    return y;
  };
  rules.push_back(
      {"linear-relu-squared", "relu(linear(x, w, b))^2 = linear(..){relu_squared}",
       P::op(OpCode::Mul, {P::any("l"), P::any("again")}),
       [](const Match &m) { return m.value("l") == m.value("again") && squaresRelu(m); }, squared});
  rules.push_back({"linear-relu-squared",
                   "pow(relu(linear(x, w, b)), 2) = linear(..){relu_squared}",
                   P::op(OpCode::Pow, {P::any("l"), P::number(2)}), squaresRelu, squared});
  rules.push_back(
      {"linear-residual", "r + linear(x, w, b) = linear(x, w, b, r)",
       P::op(OpCode::Add,
             {P::oneOf({P::op(OpCode::Linear, {P::any("x"), P::any("w")}, "l"),
                        P::op(OpCode::Linear, {P::any("x"), P::any("w"), P::any("b")}, "l")}),
              P::any("r")}),
       [](const Match &m) {
         return !m.op("l")->operand(ops::Linear::Residual) && m.value("l")->hasOneUse() &&
                m.value("r") != m.value("l") && m.value("l")->type == m.root()->result()->type &&
                m.value("r")->type == m.root()->result()->type;
       },
       [](const Match &m, Builder &b) {
         Op *l = m.op("l");
         return b.value(OpCode::Linear,
                        {l->operand(ops::Linear::X), l->operand(ops::Linear::W),
                         l->operand(ops::Linear::Bias), m.value("r")},
                        l->givenAttrs());
       }});
  // Of layers whose attention and MLP read one input.
  rules.push_back(
      {"residual-of-residual", "(linear1 + linear2(.., none)) + r = linear1 + linear2(.., r)",
       P::op(OpCode::Add, {P::any("l"), P::any("r")}),
       [](const Match &m) {
         Op *l = m.op("l");
         if (!l || !l->is(OpCode::Linear) || !l->result()->hasOneUse() ||
             !l->operand(ops::Linear::Residual))
           return false;
         const Value *inner = l->operand(ops::Linear::Residual);
         return inner->def() && inner->def()->is(OpCode::Linear) && inner->hasOneUse() &&
                isPlainLinear(*inner->def()) && m.value("r")->type == inner->type &&
                inner->type == m.root()->result()->type;
       },
       [](const Match &m, Builder &b) -> llvm::Expected<Value *> {
         using enum ops::Linear::Operand;
         Op *l = m.op("l"), *inner = l->operand(Residual)->def();
         auto sum =
             b.value(OpCode::Linear,
                     {inner->operand(X), inner->operand(W), inner->operand(Bias), m.value("r")},
                     inner->givenAttrs());
         if (!sum)
           return sum;
         (*sum)->def()->addLocations(inner->locations);
         auto y = b.value(OpCode::Linear, {l->operand(X), l->operand(W), l->operand(Bias), *sum},
                          l->givenAttrs());
         if (y)
           (*y)->def()->addLocations(l->locations);
         return y;
       }});
  return rules;
}

/// activation(x w1^T) * (x w2^T) = gated(x [w1; w2]^T), also where one product was exported.
static llvm::Error fuseGate(Function &f, Op *mul) {
  for (unsigned i : {0u, 1u}) {
    Value *active = mul->operand(i), *up = mul->operand(1 - i);
    const auto activation = active->def() ? activationOf(*active->def()) : std::nullopt;
    if (!activation || !active->hasOneUse() || active->type != up->type ||
        up->type != mul->result()->type)
      continue;
    Value *gate = active->def()->operand(0);
    if (!gate->hasOneUse() || !up->hasOneUse() || gate == up)
      continue;
    Builder b(f, mul);
    auto packed = besideEachOther({gate, up}, b);
    if (!packed)
      return packed.takeError();
    if (!*packed)
      continue;
    auto y = b.value(OpCode::Gated, {*packed}, {{"activation", infoOf(*activation).name.str()}});
    if (!y)
      return y.takeError();
    llvm::SmallVector<Op *> replaced{mul, active->def()};
    for (Value *v : {gate, up})
      if (v->def())
        replaced.push_back(v->def());
    adoptLocations(b.created(), replaced);
    mul->result()->replaceAllUsesWith(*y);
    break;
  }
  return llvm::Error::success();
}

llvm::Error fuseEpilogues(PassContext &ctx) {
  for (auto &f : ctx.module().functions) {
    llvm::SmallVector<Op *> products;
    for (auto &op : f->ops())
      if (op->is(OpCode::Mul))
        products.push_back(op.get());
    for (Op *mul : products)
      if (llvm::Error e = fuseGate(*f, mul))
        return e;
    f->eraseDeadOps();
    auto n = applyRules(*f, epilogueRules());
    if (!n)
      return n.takeError();
  }
  return llvm::Error::success();
}

} // namespace gpt2c

// fuse-epilogues: what follows a linear element by element is done where the product is still in
// registers.
//
// Termination: every rule removes a gelu or an add.
#include "passes/Rewrite.h"

namespace gpt2c {

using P = Pattern;

static bool isPlainLinear(const Op &op) {
  return op.stringAttr("activation") == "none" && !op.hasAttr("dtype") && !op.operand(3);
}

static std::vector<Rule> epilogueRules() {
  std::vector<Rule> rules;
  rules.push_back(
      {"linear-gelu", "gelu(linear(x, w, b)) = linear(x, w, b){activation}",
       P::op(OpCode::Gelu,
             {P::oneOf({P::op(OpCode::Linear, {P::any("x"), P::any("w")}, "l"),
                        P::op(OpCode::Linear, {P::any("x"), P::any("w"), P::any("b")}, "l")})}),
       [](const Match &m) { return isPlainLinear(*m.op("l")) && m.value("l")->hasOneUse(); },
       [](const Match &m, Builder &b) {
         bool tanh = m.root()->stringAttr("approximate") == "tanh";
         return b.value(OpCode::Linear, m.op("l")->operands(),
                        {{"activation", std::string(tanh ? "gelu_tanh" : "gelu_erf")}});
       }});
  rules.push_back(
      {"linear-residual", "r + linear(x, w, b) = linear(x, w, b, r)",
       P::op(OpCode::Add,
             {P::oneOf({P::op(OpCode::Linear, {P::any("x"), P::any("w")}, "l"),
                        P::op(OpCode::Linear, {P::any("x"), P::any("w"), P::any("b")}, "l")}),
              P::any("r")}),
       [](const Match &m) {
         return !m.op("l")->operand(3) && m.value("l")->hasOneUse() &&
                m.value("r") != m.value("l") && m.value("l")->type == m.root()->result()->type &&
                m.value("r")->type == m.root()->result()->type;
       },
       [](const Match &m, Builder &b) {
         Op *l = m.op("l");
         return b.value(OpCode::Linear, {l->operand(0), l->operand(1), l->operand(2), m.value("r")},
                        l->givenAttrs());
       }});
  return rules;
}

llvm::Error fuseEpilogues(PassContext &ctx) {
  for (auto &f : ctx.module().functions) {
    auto n = applyRules(*f, epilogueRules());
    if (!n)
      return n.takeError();
  }
  return llvm::Error::success();
}

} // namespace gpt2c

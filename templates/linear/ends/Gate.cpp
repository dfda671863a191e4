// A gate: columns 2 i of the product, activated, times columns 2 i + 1.
#include "templates/linear/ends/EpilogueEnd.h"

namespace gpt2c {

namespace gate_end {

static bool fits(const Op &op, const Op &product) {
  return op.is(OpCode::Gated) && op.boolAttr("interleaved") &&
         product.result(0)->type.dtype == op.result()->type.dtype;
}

static EpilogueStage stage(const LinearGroup &g, ArgList &) {
  const Activation a = *activationNamed(g.end->stringAttr("activation"));
  return {EpilogueStage::Gate, Scalar::F32,
          a == Activation::None ? EpilogueStage::Gate : stageOf(a)};
}

static void write(EpilogueWriter &w, const EpilogueStage &stage) {
  w.trait("Gated");
  w.trait("Paired");
  w.line("float g[maxInt(1, V / 2)];");
  w.apply("gates(v, g)");
  if (stage.ofGate != EpilogueStage::Gate)
    w.apply(functionOf(stage.ofGate) + "(g)");
  w.apply("gated(v, g)");
}

} // namespace gate_end

const EpilogueEnd endGate = {
    {.kind = ProductEndKind::Gate,
     .fits = gate_end::fits,
     .name = [](const Op &op) { return "+" + op.stringAttr("activation") + " gate"; },
     .normRows = 64},
    gate_end::stage,
    gate_end::write,
};

} // namespace gpt2c

// report-unfused: silence means that everything fused. What @prefill and @decode still compute in a
// launch of its own, beside the ops that the fused form has, becomes a remark with the reason. It
// changes nothing.
#include "ir/Activations.h"
#include "ir/FunctionNames.h"
#include "passes/Pass.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// The ops of the fused form, and what is no launch.
static bool isFusedForm(const Op &op) {
  switch (op.code()) {
  case OpCode::Embed:
  case OpCode::LayerNorm:
  case OpCode::RmsNorm:
  case OpCode::AddLayerNorm:
  case OpCode::Linear:
  case OpCode::Rope:
  case OpCode::Gated:
  case OpCode::AppendAttention:
  case OpCode::GatherLast:
  case OpCode::ArgMax:
  case OpCode::Dequantize:     // of weights
  case OpCode::AffineQuantize: // fuse-quantize reports it
    return true;
  case OpCode::AffineDequantize: // the product multiplies what is quantised
    return op.hasUses() && llvm::all_of(op.result()->uses(), [](const Use &u) {
             return u.operand == ops::Linear::X && importedWeights(*u.op);
           });
  case OpCode::Cast: // of the logits
    return op.hasUses() && llvm::all_of(op.result()->uses(), [](const Use &u) {
             return u.op->is(OpCode::Return) || u.op->is(OpCode::ArgMax);
           });
  default:
    return !isLaunched(op);
  }
}

/// Why an activation or a sum did not move into the product in front of it.
static Obstacle whyApart(const Op &op) {
  bool epilogue = activationOf(op) || op.is(OpCode::Add);
  for (const Value *v : op.operands()) {
    const Op *product = v ? v->def() : nullptr;
    if (!epilogue || !product || !product->is(OpCode::Linear))
      continue;
    if (!v->hasOneUse())
      return {"the result of " + product->describe() + " is used " +
                  std::to_string(v->uses().size()) + " times",
              product, "uses"};
    if (product->operand(ops::Linear::Residual) || product->stringAttr("activation") != "none")
      return {product->describe() + " has an epilogue already", product, "activation"};
  }
  if (epilogue)
    return {"no product in front of it can take it", &op};
  return {"the fused form has no such op", &op};
}

llvm::Error reportUnfused(PassContext &ctx) {
  llvm::SmallVector<llvm::StringRef> said; // nodes with a remark, which need no second one
  for (const Remark &r : ctx.remarks())
    if (r.severity == Remark::Missed) {
      said.append(r.nodes.begin(), r.nodes.end());
      said.append(r.apart.begin(), r.apart.end());
    }
  for (llvm::StringRef name : {functions::decode, functions::prefill}) {
    const Function *f = ctx.module().function(name);
    if (!f)
      continue;
    for (auto &op : f->ops()) {
      auto known = [&](llvm::StringRef node) { return llvm::is_contained(said, node); };
      if (isFusedForm(*op) || llvm::any_of(op->locations, known))
        continue;
      Obstacle why = whyApart(*op);
      Remark &remark = ctx.missed("fusion: " + op->describe() + " in @" + name +
                                      " is a launch of its own, since " + why.reason,
                                  op->locations)
                           .of("fusion")
                           .stoppedBy(why);
      remark.launches = 1;
      remark.bytes = leastBytes(*op);
      said.append(op->locations.begin(), op->locations.end());
    }
  }
  return llvm::Error::success();
}

} // namespace gpt2c

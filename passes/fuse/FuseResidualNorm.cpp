// fuse-residual-norm: a sum and the layer or RMS norm of it in one pass over the rows,
//   layer_norm(a + b) = add_layer_norm(a, b), which gives the sum, too; rms_norm with {rms = true}.
// A sum behind a product is added where the product is stored (fuse-epilogues); what is left are
// sums of other values. Where each sequence has one row, the product that reads the norm computes
// it in passing, so a sum with a norm behind would save no launch.
//
// Termination: every rewrite removes an add.
#include "passes/Rewrite.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// The norm over the last axis that is the first op to read `sum`; null when another reads it
/// earlier.
static Op *firstReader(Function &f, Value *sum) {
  for (Op *op = f.next(sum->def()); op; op = f.next(op)) {
    if (!llvm::is_contained(op->operands(), sum))
      continue;
    int64_t last = int64_t(sum->type.rank()) - 1;
    bool lastAxis =
        op->is(OpCode::RmsNorm) ||
        (op->is(OpCode::LayerNorm) && (op->intAttr("axis") == -1 || op->intAttr("axis") == last));
    return lastAxis && op->operand(ops::LayerNorm::X) == sum ? op : nullptr;
  }
  return nullptr;
}

static bool hasManyRows(const Type &t) {
  return t.rank() >= 2 && t.shape.back().isConstant() &&
         llvm::any_of(llvm::ArrayRef(t.shape).slice(1, t.rank() - 2),
                      [](const Dim &d) { return d != Dim(1); });
}

static bool isVector(const Value *v, const Dim &width) {
  return !v || (v->type.rank() == 1 && v->type.shape[0] == width);
}

llvm::Error fuseResidualNorm(PassContext &ctx) {
  for (auto &f : ctx.module().functions) {
    llvm::SmallVector<Op *> sums;
    for (auto &op : f->ops())
      if (op->is(OpCode::Add) && hasManyRows(op->result()->type) &&
          op->operand(0)->type == op->result()->type &&
          op->operand(1)->type == op->result()->type && isFloat(op->result()->type.dtype))
        sums.push_back(op.get());
    for (Op *sum : sums) {
      Op *norm = firstReader(*f, sum->result());
      const Dim &width = sum->result()->type.shape.back();
      if (!norm || !isVector(norm->operand(ops::LayerNorm::Scale), width) ||
          !isVector(norm->operand(ops::LayerNorm::Bias), width))
        continue;
      Builder b(*f, norm);
      llvm::SmallVector<NamedAttr> attrs{{"epsilon", norm->floatAttr("epsilon")}};
      if (norm->is(OpCode::RmsNorm))
        attrs.push_back({"rms", true});
      auto fused = b.create(OpCode::AddLayerNorm,
                            {sum->operand(0), sum->operand(1), norm->operand(ops::LayerNorm::Scale),
                             norm->operand(ops::LayerNorm::Bias)},
                            attrs);
      if (!fused)
        return fused.takeError();
      adoptLocations(b.created(), {sum, norm});
      sum->result()->replaceAllUsesWith((*fused)->result(ops::AddLayerNorm::Sum));
      norm->result()->replaceAllUsesWith((*fused)->result(ops::AddLayerNorm::Y));
    }
    f->eraseDeadOps();
  }
  return llvm::Error::success();
}

} // namespace gpt2c

#include "schedule/products/Operands.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

Scalar scalarOf(DType t) {
  return t == DType::F16 || t == DType::BF16 || isQuantised(t) ? t : Scalar::F32;
}

bool hasKernelTypes(const Op &op) {
  auto known = [](const Value *v) {
    return !v || !isFloat(v->type.dtype) || v->type.dtype == DType::F32 ||
           v->type.dtype == DType::F16 || v->type.dtype == DType::BF16;
  };
  return llvm::all_of(op.operands(), known) && llvm::all_of(op.results(), known);
}

const Tensor *constantOf(const Value *v) { return isConstant(v) ? &v->def()->constant : nullptr; }

bool isOnes(const Value *v) {
  const Tensor *c = constantOf(v);
  if (!c || !c->valid())
    return false;
  for (int64_t i = 0; i < c->count(); ++i)
    if (c->asDouble(i) != 1)
      return false;
  return true;
}

bool isRowNorm(const Op &op) {
  using enum ops::LayerNorm::Operand; // rms_norm has no Bias
  const Type &x = op.operand(X)->type, &gain = op.operand(Scale)->type;
  bool lastAxis = op.is(OpCode::RmsNorm) || op.intAttr("axis") == -1 ||
                  op.intAttr("axis") == int64_t(x.rank()) - 1;
  bool vectors = gain.rank() == 1 && gain.shape[0] == x.shape.back() &&
                 (!op.operand(Bias) || op.operand(Bias)->type == gain);
  return lastAxis && vectors && x.shape.back().isConstant() && hasKernelTypes(op);
}

bool isFoldedNorm(const Op &op) {
  using enum ops::LayerNorm::Operand;
  return isNorm(op) && isRowNorm(op) && !op.operand(Bias) && isOnes(op.operand(Scale));
}

bool isProduct(const Op &op) {
  return op.is(OpCode::Linear) || op.is(OpCode::QuantizedLinear) ||
         op.is(OpCode::RequantizedLinear);
}

Value *residualOf(const Op &op) {
  return op.is(OpCode::Linear)            ? op.operand(ops::Linear::Residual)
         : op.is(OpCode::QuantizedLinear) ? op.operand(ops::QuantizedLinear::Residual)
                                          : nullptr;
}

bool isView(const Op &op) {
  return op.is(OpCode::Reshape) || op.is(OpCode::Squeeze) || op.is(OpCode::Unsqueeze);
}

bool keepsRows(const Op &op) {
  if (!op.is(OpCode::Reshape) && !op.is(OpCode::Cast))
    return false;
  const Type &from = op.operand(0)->type, &to = op.result()->type;
  return from.rank() > 0 && to.rank() > 0 && from.shape.back() == to.shape.back() &&
         (from.dtype == to.dtype || (to.dtype == DType::F32 && byteSize(from.dtype) == 2));
}

int64_t groupOf(const Value *scales, int64_t k) {
  int64_t groups = lastDim(scales);
  return groups == 1 ? 0 : k / groups;
}

Given givenOf(const Value *scale, const Value *zero, DType to) {
  if (!isConstant(scale) || (zero && !isConstant(zero)))
    return Given::None;
  return zero ? Given::ScaleAndZero : to == DType::F8E4M3 ? Given::Fp8Scale : Given::Scale;
}

} // namespace gpt2c

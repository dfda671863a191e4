#include "passes/MergedProduct.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>

namespace gpt2c {

/// Where `v` starts in its source when it is a slice of columns.
static std::pair<Value *, int64_t> columnSource(Value *v) {
  Op *op = v->def();
  if (!op || !op->is(OpCode::Slice) || !op->hasAttr("starts") || !op->hasAttr("axes") ||
      op->operand(ops::Slice::Steps) || op->hasAttr("steps"))
    return {v, 0};
  const Dims &axes = op->dimsAttr("axes"), &starts = op->dimsAttr("starts");
  int64_t last = v->type.rank() - 1;
  if (axes.size() != 1 || (axes[0] != Dim(last) && axes[0] != Dim(-1)) || !starts[0].isConstant())
    return {v, 0};
  return {op->operand(ops::Slice::X), *starts[0].constant()};
}

/// The rows of several weight matrices [n_i, K], or the elements of several vectors, one after the
/// other.
static Tensor stacked(llvm::ArrayRef<Tensor> parts) {
  llvm::SmallVector<int64_t> shape(parts[0].shape());
  shape[0] = 0;
  for (const Tensor &t : parts)
    shape[0] += t.dim(0);
  Tensor out(parts[0].dtype(), shape);
  char *to = static_cast<char *>(out.raw());
  for (const Tensor &t : parts) {
    std::memcpy(to, t.raw(), t.bytes());
    to += t.bytes();
  }
  return out;
}

/// The constants one below the other, as one that has the first one's name; null when one is no
/// constant.
static Value *stackedConstants(llvm::ArrayRef<Value *> parts, Builder &b) {
  llvm::SmallVector<Tensor> tensors;
  for (Value *v : parts) {
    Op *c = constantOp(v);
    if (!c || !c->constant.valid() || v->type.dtype != parts[0]->type.dtype)
      return nullptr;
    tensors.push_back(c->constant);
  }
  Value *all = b.constant(stacked(tensors));
  all->name = parts[0]->name;
  return all;
}

/// The same for weights, which may be int8 that is dequantised with a scale for each row.
static llvm::Expected<Value *> stackedWeights(llvm::ArrayRef<Value *> parts, Builder &b) {
  llvm::SmallVector<Value *> q, scales;
  for (Value *v : parts)
    if (Op *def = v->def(); def && def->is(OpCode::Dequantize)) {
      q.push_back(def->operand(ops::Dequantize::Q));
      scales.push_back(def->operand(ops::Dequantize::Scale));
    }
  if (q.size() != parts.size())
    return stackedConstants(parts, b);
  Value *weights = stackedConstants(q, b), *scale = stackedConstants(scales, b);
  if (!weights || !scale)
    return nullptr;
  return b.value(OpCode::Dequantize, {weights, scale}, parts[0]->def()->givenAttrs());
}

/// One product for several that share their input: linear(x, [w1; w2; ..], [b1; b2; ..]). Null when
/// they do not.
static llvm::Expected<Value *> mergedProduct(llvm::ArrayRef<Value *> parts, Builder &b) {
  using enum ops::Linear::Operand;
  llvm::SmallVector<Value *> weights, biases;
  for (Value *v : parts) {
    Op *l = v->def();
    if (!l || !l->is(OpCode::Linear) || l->operand(X) != parts[0]->def()->operand(X) ||
        l->operand(Residual) || l->stringAttr("activation") != "none" ||
        bool(l->operand(Bias)) != bool(parts[0]->def()->operand(Bias)))
      return nullptr;
    weights.push_back(l->operand(W));
    if (l->operand(Bias))
      biases.push_back(l->operand(Bias));
  }
  Value *bias = biases.empty() ? nullptr : stackedConstants(biases, b);
  if (!biases.empty() && !bias)
    return nullptr;
  auto weight = stackedWeights(weights, b);
  if (!weight || !*weight)
    return weight;
  return b.value(OpCode::Linear, {parts[0]->def()->operand(X), *weight, bias});
}

llvm::Expected<Value *> besideEachOther(llvm::ArrayRef<Value *> parts, Builder &b) {
  Value *source = columnSource(parts[0]).first;
  int64_t width = 0;
  bool packed = true;
  for (Value *v : parts) {
    auto [s, at] = columnSource(v);
    packed &= s == source && at == width;
    width += v->type.shape.back().constant().value_or(0);
  }
  if (packed && source->type.shape.back() == Dim(width))
    return source;
  return mergedProduct(parts, b);
}

} // namespace gpt2c

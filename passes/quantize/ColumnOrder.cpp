#include "passes/quantize/ColumnOrder.h"

#include "passes/Rewrite.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>

namespace gpt2c {

/// The operands that a product has with a row for each of its columns.
static llvm::SmallVector<unsigned> ofColumns(const Op &product) {
  using Int8 = ops::QuantizedLinear;
  llvm::SmallVector<unsigned> all{ops::Linear::W, ops::Linear::Bias};
  if (!product.is(OpCode::Linear))
    all = {Int8::W, Int8::WScale, Int8::Bias, Int8::SumOffset, Int8::WZero};
  llvm::erase_if(all, [&](unsigned i) { return !product.operand(i); });
  return all;
}

bool ColumnOrder::isFree(const Op *product) {
  if (!product || !(product->is(OpCode::Linear) || product->is(OpCode::QuantizedLinear)) ||
      product->stringAttr("activation") != "none" ||
      product->operand(product->is(OpCode::Linear) ? unsigned(ops::Linear::Residual)
                                                   : unsigned(ops::QuantizedLinear::Residual)))
    return false;
  const Dim &columns = product->result(0)->type.shape.back();
  return llvm::all_of(ofColumns(*product), [&](unsigned i) {
    const Value *v = product->operand(i);
    return constantOp(v) && constantOp(v)->constant.valid() && v->type.rank() > 0 &&
           v->type.shape[0] == columns;
  });
}

const Tensor &ColumnOrder::weightsOf(const Op &product) {
  return constantOp(product.operand(ops::Linear::W))->constant;
}

llvm::Expected<Value *> ColumnOrder::reorder(Function &f, Op &product,
                                             llvm::ArrayRef<int64_t> order) {
  Builder b(f, &product);
  b.setLocations(product.locations);
  llvm::SmallVector<Value *> operands(product.operands());
  for (unsigned i : ofColumns(product)) {
    Value *moved = b.constant(rows(constantOp(operands[i])->constant, order));
    moved->name = operands[i]->name;
    operands[i] = moved;
  }
  return b.value(product.code(), operands, product.givenAttrs());
}

Tensor ColumnOrder::rows(const Tensor &t, llvm::ArrayRef<int64_t> order) {
  auto [it, isNew] = made_.try_emplace({t.raw(), order.vec()});
  if (!isNew)
    return it->second.second;
  Tensor out(t.dtype(), t.shape());
  const int64_t bytes = t.dim(0) ? int64_t(t.bytes()) / t.dim(0) : 0;
  const char *from = static_cast<const char *>(t.raw());
  char *to = static_cast<char *>(out.raw());
  for (auto [i, row] : llvm::enumerate(order))
    std::memcpy(to + int64_t(i) * bytes, from + row * bytes, bytes);
  it->second = {t, out};
  return out;
}

} // namespace gpt2c

#include "frontend/Builders.h"

#include <cmath>

namespace gpt2c::onnxops {

void constantOp(NodeLowering &n) {
  if (auto t = n.tensorAttr("value"))
    n.out(n.constant(std::move(*t)));
  else if (n.hasAttr("value_float"))
    n.out(n.constant(Tensor::scalar(static_cast<float>(n.floatAttr("value_float", 0)))));
  else if (n.hasAttr("value_int"))
    n.out(n.constant(Tensor::scalar(n.intAttr("value_int", 0))));
  else if (auto floats = n.floatsAttr("value_floats"))
    n.out(n.constant(Tensor::of<float>(*floats, {static_cast<int64_t>(floats->size())})));
  else if (auto ints = n.intsAttr("value_ints"))
    n.out(n.ints(*ints));
  else if (n.hasAttr("value_string") || n.hasAttr("value_strings"))
    n.unsupported("string constants are not supported");
  else if (n.hasAttr("sparse_value"))
    n.unsupported("sparse constants are not supported");
  else
    n.invalid("no attribute gives the value");
}

void constantOfShape(NodeLowering &n) {
  Value *shape = n.in(0);
  DType dtype = DType::F32;
  double value = 0;
  if (auto t = n.tensorAttr("value")) {
    if (t->count() != 1) {
      n.invalid("attribute 'value' must have one element");
      return;
    }
    dtype = t->dtype();
    value = t->asDouble(0);
    if (isInteger(dtype) && std::abs(value) >= 0x1p53) {
      n.unsupported("an integer of 2^53 or more as fill value is not supported");
      return;
    }
  }
  n.out(n.emit(OpCode::ConstantOfShape, {shape}, {{"value", value}, {"dtype", dtype}}));
}

void range(NodeLowering &n) { n.out(n.emit(OpCode::Range, {n.in(0), n.in(1), n.in(2)})); }

void sizeOp(NodeLowering &n) {
  n.out(n.reduce(OpCode::ReduceProd, n.shapeOf(n.in(0)), {0}, /*keepDims=*/false));
}

/// eye[i, j] = (i + k == j)
void eyeLike(NodeLowering &n) {
  Value *x = n.in(0);
  if (n.failed())
    return;
  if (x->type.rank() != 2) {
    n.invalid("the input must have rank 2");
    return;
  }
  DType dtype = x->type.dtype;
  if (n.hasAttr("dtype")) {
    auto given = n.dtypeAttr("dtype");
    if (!given)
      return;
    dtype = *given;
  }
  Value *k = n.constant(Tensor::scalar(n.intAttr("k", 0)));
  Value *row = n.unsqueeze(n.add(n.iota(n.sizeOf(x, 0)), k), {1});
  Value *column = n.unsqueeze(n.iota(n.sizeOf(x, 1)), {0});
  n.out(n.cast(n.equal(row, column), dtype));
}

} // namespace gpt2c::onnxops

#include "ir/ops/Common.h"

namespace gpt2c {

using ops::Expand::X;

static llvm::Error inferExpand(InferContext &c) {
  if (!listGiven(c.op(), "shape", ops::Expand::Shape))
    return c.error("needs the operand or the attribute 'shape'");
  auto target = knownList(c, "shape", ops::Expand::Shape);
  if (!target) {
    auto length = rankFromLength(c, ops::Expand::Shape);
    if (!length)
      return length.takeError();
    Shape shape;
    for (int64_t i = 0, rank = std::max<int64_t>(*length, c.rank(X)); i < rank; ++i)
      shape.push_back(c.unknown(i));
    c.setResult(c.dtype(X), std::move(shape));
    return llvm::Error::success();
  }
  auto shape = c.broadcast(c.shape(X), *target);
  if (!shape)
    return shape.takeError();
  c.setResult(c.dtype(X), std::move(*shape));
  forwardContent(c);
  return llvm::Error::success();
}

static llvm::Error evalExpand(EvalContext &c) {
  auto target = listValue(c, "shape", ops::Expand::Shape);
  if (!target)
    return target.takeError();
  const Tensor &x = c.input(X);
  auto shape = broadcastShapes(x.shape(), *target);
  if (!shape)
    return c.error("the shape does not broadcast");
  auto from = rowMajorStrides(x.shape());
  llvm::SmallVector<int64_t, 4> strides(shape->size(), 0);
  for (unsigned i = 0; i < x.rank(); ++i)
    if (x.dim(i) != 1)
      strides[shape->size() - x.rank() + i] = from[i];
  copyStrided(x, 0, strides, c.allocate(*shape));
  return llvm::Error::success();
}

const OpInfo opExpand = {
    .code = OpCode::Expand,
    .mnemonic = "expand",
    .summary = "y = x broadcast with a shape",
    .operands = {{"x"}, {"shape", OperandSpec::Optional}},
    .attrs = {{.name = "shape",
               .kind = AttrKind::Dims,
               .doc = "instead of the operand",
               .optional = true}},
    .traits = DataMovement,
    .infer = inferExpand,
    .eval = evalExpand,
};

} // namespace gpt2c

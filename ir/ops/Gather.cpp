#include "ir/ops/Common.h"

#include <cstring>

namespace gpt2c {

static llvm::Error inferGather(InferContext &c) {
  using enum ops::Gather::Operand;
  auto axis = c.axis(c.op().intAttr("axis"), c.rank(X));
  if (!axis)
    return axis.takeError();
  if (c.dtype(Indices) != DType::I64 && c.dtype(Indices) != DType::I32)
    return c.error("indices must be i32 or i64");
  Shape shape(c.shape(X).take_front(*axis));
  shape.append(c.shape(Indices).begin(), c.shape(Indices).end());
  llvm::ArrayRef<Dim> rest = c.shape(X).drop_front(*axis + 1);
  shape.append(rest.begin(), rest.end());
  c.setResult(c.dtype(X), std::move(shape));
  forwardContent(c);
  return llvm::Error::success();
}

static llvm::Error evalGather(EvalContext &c) {
  using enum ops::Gather::Operand;
  const Tensor &x = c.input(X), &indices = c.input(Indices);
  int64_t axis = c.op().intAttr("axis");
  axis = axis < 0 ? axis + x.rank() : axis;
  llvm::SmallVector<int64_t, 4> shape(x.shape().take_front(axis));
  shape.append(indices.shape().begin(), indices.shape().end());
  shape.append(x.shape().begin() + axis + 1, x.shape().end());
  Tensor &out = c.allocate(shape);
  int64_t size = x.dim(axis), rows = product(x.shape().take_front(axis));
  int64_t width = product(x.shape().drop_front(axis + 1)) * byteSize(x.dtype());
  std::vector<int64_t> at = c.ints(Indices);
  for (int64_t &i : at) {
    if (i < -size || i >= size)
      return c.error("index " + llvm::Twine(i) + " is out of range");
    i = i < 0 ? i + size : i;
  }
  char *dst = static_cast<char *>(out.raw());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i : at) {
      std::memcpy(dst, static_cast<const char *>(x.raw()) + (r * size + i) * width, width);
      dst += width;
    }
  return llvm::Error::success();
}

/// Only the rows that are read count.
static Cost costGather(const Op &op) {
  using enum ops::Gather::Operand;
  const Type &y = op.result()->type, &indices = op.operand(Indices)->type;
  return {0, elementCount(y.shape) * Dim(2 * byteSize(y.dtype)) +
                 elementCount(indices.shape) * Dim(byteSize(indices.dtype))};
}

const OpInfo opGather = {
    .code = OpCode::Gather,
    .mnemonic = "gather",
    .summary = "y = x[..., indices, ...] along an axis; negative indices count from the end",
    .operands = {{"x"}, {"indices"}},
    .attrs = {{"axis", AttrKind::Int, Attr(int64_t(0))}},
    .traits = DataMovement,
    .infer = inferGather,
    .eval = evalGather,
    .cost = costGather,
};

} // namespace gpt2c

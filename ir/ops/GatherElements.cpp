#include "ir/ops/Common.h"

namespace gpt2c {

static llvm::Error inferGatherElements(InferContext &c) {
  using enum ops::GatherElements::Operand;
  auto axis = c.axis(c.op().intAttr("axis"), c.rank(X));
  if (!axis)
    return axis.takeError();
  if (c.rank(X) != c.rank(Indices))
    return c.error("x and indices differ in rank");
  c.setResult(c.dtype(X), Shape(c.shape(Indices)));
  forwardContent(c);
  return llvm::Error::success();
}

static llvm::Error evalGatherElements(EvalContext &c) {
  using enum ops::GatherElements::Operand;
  const Tensor &x = c.input(X), &indices = c.input(Indices);
  int64_t axis = c.op().intAttr("axis");
  axis = axis < 0 ? axis + x.rank() : axis;
  for (unsigned i = 0; i < x.rank(); ++i)
    if (i != axis && indices.dim(i) > x.dim(i))
      return c.error("indices exceed x in axis " + llvm::Twine(i));
  auto strides = rowMajorStrides(x.shape());
  int64_t size = x.dim(axis), stride = strides[axis];
  strides[axis] = 0;
  // Where each result element would come from at index 0.
  Tensor positions(DType::I64, x.shape());
  for (int64_t i = 0, n = x.count(); i < n; ++i)
    positions.data<int64_t>()[i] = i;
  Tensor base(DType::I64, indices.shape());
  copyStrided(positions, 0, strides, base);
  Tensor &out = c.allocate(indices.shape());
  std::vector<int64_t> at = c.ints(Indices);
  for (int64_t i : at)
    if (i < -size || i >= size)
      return c.error("index " + llvm::Twine(i) + " is out of range");
  withWord(byteSize(x.dtype()), [&](auto tag) {
    using Word = decltype(tag);
    for (size_t i = 0; i < at.size(); ++i)
      out.data<Word>()[i] =
          x.data<Word>()[base.data<int64_t>()[i] + (at[i] < 0 ? at[i] + size : at[i]) * stride];
  });
  return llvm::Error::success();
}

const OpInfo opGatherElements = {
    .code = OpCode::GatherElements,
    .mnemonic = "gather_elements",
    .summary = "y[i0, i1, ...] = x at the same position, but indices[i0, i1, ...] along the axis",
    .operands = {{"x"}, {"indices"}},
    .attrs = {{"axis", AttrKind::Int, Attr(int64_t(0))}},
    .traits = DataMovement,
    .infer = inferGatherElements,
    .eval = evalGatherElements,
};

} // namespace gpt2c

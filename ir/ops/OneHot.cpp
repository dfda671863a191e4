#include "ir/ops/Common.h"

namespace gpt2c {

static llvm::Error inferOneHot(InferContext &c) {
  using enum ops::OneHot::Operand;
  auto axis = c.axis(c.op().intAttr("axis"), c.rank(Indices) + 1);
  if (!axis)
    return axis.takeError();
  if (c.rank(Values) != 1)
    return c.error("values must be a vector [off, on]");
  const Dims *depth = c.content(Depth);
  Shape shape(c.shape(Indices));
  shape.insert(shape.begin() + *axis,
               depth && depth->size() == 1 ? depth->front() : c.unknown(*axis));
  c.setResult(c.dtype(Values), std::move(shape));
  return llvm::Error::success();
}

/// An index out of [-depth, depth) gives no element `on`.
static llvm::Error evalOneHot(EvalContext &c) {
  using enum ops::OneHot::Operand;
  const Tensor &indices = c.input(Indices);
  Tensor values = c.input(Values).cast(c.resultDType());
  int64_t depth = c.input(Depth).asInt(0), axis = c.op().intAttr("axis");
  axis = axis < 0 ? axis + indices.rank() + 1 : axis;
  if (depth < 0 || values.count() != 2)
    return c.error("needs a depth of at least 0 and two values");
  llvm::SmallVector<int64_t, 4> shape(indices.shape());
  shape.insert(shape.begin() + axis, depth);
  Tensor &out = c.allocate(shape);
  int64_t inner = product(indices.shape().drop_front(axis));
  std::vector<int64_t> at = c.ints(Indices);
  withWord(byteSize(out.dtype()), [&](auto tag) {
    using Word = decltype(tag);
    std::fill_n(out.data<Word>(), out.count(), values.data<Word>()[0]);
    for (int64_t i = 0, n = at.size(); i < n; ++i)
      if (int64_t k = at[i] < 0 ? at[i] + depth : at[i]; k >= 0 && k < depth)
        out.data<Word>()[(i / inner * depth + k) * inner + i % inner] = values.data<Word>()[1];
  });
  return llvm::Error::success();
}

const OpInfo opOneHot = {
    .code = OpCode::OneHot,
    .mnemonic = "one_hot",
    .summary = "y[..., k, ...] = values[indices == k], with a new axis of size depth",
    .operands = {{"indices"}, {"depth"}, {"values"}},
    .attrs = {{"axis", AttrKind::Int, Attr(int64_t(-1))}},
    .infer = inferOneHot,
    .eval = evalOneHot,
};

} // namespace gpt2c

#include "ir/ops/Common.h"

#include <cstring>

namespace gpt2c {

static llvm::Error inferScatterND(InferContext &c) {
  using enum ops::ScatterND::Operand;
  if (c.rank(Indices) == 0)
    return c.error("indices must have an axis of index tuples");
  auto depth = c.shape(Indices).back().constant();
  if (!depth || *depth > c.rank(X))
    return c.error("the last axis of indices must be a constant of at most rank(x)");
  if (c.dtype(Updates) != c.dtype(X) || c.rank(Updates) != c.rank(Indices) - 1 + c.rank(X) - *depth)
    return c.error("updates do not fit x and indices");
  return inferSameAsOperand(c);
}

/// Of several updates of one place the last stands.
static llvm::Error evalScatterND(EvalContext &c) {
  using enum ops::ScatterND::Operand;
  const Tensor &x = c.input(X), &indices = c.input(Indices), &updates = c.input(Updates);
  int64_t depth = indices.dim(-1), tuples = product(indices.shape().drop_back());
  llvm::ArrayRef<int64_t> indexed = x.shape().take_front(depth);
  int64_t width = product(x.shape().drop_front(depth)) * byteSize(x.dtype());
  if (updates.count() * byteSize(x.dtype()) != tuples * width)
    return c.error("updates do not fit x and indices");
  Tensor &out = c.allocate(x.shape());
  std::memcpy(out.raw(), x.raw(), x.bytes());
  auto strides = rowMajorStrides(indexed);
  std::vector<int64_t> at = c.ints(Indices);
  for (int64_t t = 0; t < tuples; ++t) {
    int64_t to = 0;
    for (int64_t k = 0; k < depth; ++k) {
      int64_t i = at[t * depth + k];
      if (i < -indexed[k] || i >= indexed[k])
        return c.error("index " + llvm::Twine(i) + " is out of range");
      to += (i < 0 ? i + indexed[k] : i) * strides[k];
    }
    std::memcpy(static_cast<char *>(out.raw()) + to * width,
                static_cast<const char *>(updates.raw()) + t * width, width);
  }
  return llvm::Error::success();
}

const OpInfo opScatterND = {
    .code = OpCode::ScatterND,
    .mnemonic = "scatter_nd",
    .summary = "y = x with updates written at the index tuples in the last axis of indices",
    .operands = {{"x"}, {"indices"}, {"updates"}},
    .traits = DataMovement,
    .infer = inferScatterND,
    .eval = evalScatterND,
};

} // namespace gpt2c

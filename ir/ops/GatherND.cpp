#include "ir/ops/Common.h"

#include <cstring>

namespace gpt2c {

static llvm::Error inferGatherND(InferContext &c) {
  using enum ops::GatherND::Operand;
  int64_t batch = c.op().intAttr("batch_dims");
  if (c.rank(Indices) == 0 || batch < 0 || batch >= c.rank(Indices))
    return c.error("batch_dims must be below the rank of indices");
  auto depth = c.shape(Indices).back().constant();
  if (!depth || batch + *depth > c.rank(X))
    return c.error("the last axis of indices must be a constant of at most rank(x) - batch_dims");
  Shape shape(c.shape(Indices).drop_back());
  for (int64_t i = 0; i < batch; ++i) {
    auto d = c.unify(c.shape(X)[i], shape[i]);
    if (!d)
      return d.takeError();
    shape[i] = *d;
  }
  llvm::ArrayRef<Dim> rest = c.shape(X).drop_front(batch + *depth);
  shape.append(rest.begin(), rest.end());
  c.setResult(c.dtype(X), std::move(shape));
  forwardContent(c);
  return llvm::Error::success();
}

static llvm::Error evalGatherND(EvalContext &c) {
  using enum ops::GatherND::Operand;
  const Tensor &x = c.input(X), &indices = c.input(Indices);
  int64_t batch = c.op().intAttr("batch_dims"), depth = indices.dim(-1);
  if (x.shape().take_front(batch) != indices.shape().take_front(batch))
    return c.error("the batch dimensions differ");
  llvm::ArrayRef<int64_t> indexed = x.shape().slice(batch, depth),
                          rest = x.shape().drop_front(batch + depth);
  llvm::SmallVector<int64_t, 4> shape(indices.shape().drop_back());
  shape.append(rest.begin(), rest.end());
  Tensor &out = c.allocate(shape);
  int64_t batches = product(indices.shape().take_front(batch)),
          tuples = product(indices.shape().drop_front(batch).drop_back());
  int64_t width = product(rest) * byteSize(x.dtype()), perBatch = product(indexed);
  auto strides = rowMajorStrides(indexed);
  std::vector<int64_t> at = c.ints(Indices);
  char *dst = static_cast<char *>(out.raw());
  for (int64_t t = 0; t < batches * tuples; ++t) {
    int64_t from = t / tuples * perBatch;
    for (int64_t k = 0; k < depth; ++k) {
      int64_t i = at[t * depth + k];
      if (i < -indexed[k] || i >= indexed[k])
        return c.error("index " + llvm::Twine(i) + " is out of range");
      from += (i < 0 ? i + indexed[k] : i) * strides[k];
    }
    std::memcpy(dst, static_cast<const char *>(x.raw()) + from * width, width);
    dst += width;
  }
  return llvm::Error::success();
}

const OpInfo opGatherND = {
    .code = OpCode::GatherND,
    .mnemonic = "gather_nd",
    .summary =
        "y = x at the index tuples in the last axis of indices, after batch_dims shared axes",
    .operands = {{"x"}, {"indices"}},
    .attrs = {{"batch_dims", AttrKind::Int, Attr(int64_t(0))}},
    .traits = DataMovement,
    .infer = inferGatherND,
    .eval = evalGatherND,
};

} // namespace gpt2c

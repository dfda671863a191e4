#include "ir/ops/Common.h"

#include <cstring>

namespace gpt2c {

static llvm::Error inferGatherLast(InferContext &c) {
  using enum ops::GatherLast::Operand;
  if (c.rank(X) != 3 || c.rank(Length) != 1 || !isInteger(c.dtype(Length)))
    return c.error("expects x[b, s, D] and length[b] of integers");
  auto batch = c.unify(c.shape(X)[0], c.shape(Length)[0]);
  if (!batch)
    return batch.takeError();
  c.setResult(c.dtype(X), {*batch, c.shape(X)[2]});
  return llvm::Error::success();
}

static llvm::Error evalGatherLast(EvalContext &c) {
  using enum ops::GatherLast::Operand;
  const Tensor &x = c.input(X);
  std::vector<int64_t> length = c.ints(Length);
  if (static_cast<int64_t>(length.size()) != x.dim(0))
    return c.error("needs one length per sequence");
  Tensor &out = c.allocate({x.dim(0), x.dim(2)});
  int64_t row = x.dim(2) * byteSize(x.dtype());
  for (int64_t b = 0; b < x.dim(0); ++b) {
    if (length[b] < 1 || length[b] > x.dim(1))
      return c.error("length " + llvm::Twine(length[b]) + " is out of range");
    std::memcpy(static_cast<char *>(out.raw()) + b * row,
                static_cast<const char *>(x.raw()) + (b * x.dim(1) + length[b] - 1) * row, row);
  }
  return llvm::Error::success();
}

const OpInfo opGatherLast = {
    .code = OpCode::GatherLast,
    .mnemonic = "gather_last",
    .summary = "y[b] = x[b, length[b] - 1]",
    .operands = {{"x"}, {"length"}},
    .traits = DataMovement,
    .infer = inferGatherLast,
    .eval = evalGatherLast,
    .cost =
        [](const Op &op) {
          return Cost{0, Dim(2 * byteSize(op.result()->type.dtype)) *
                             elementCount(op.result()->type.shape)};
        },
};

} // namespace gpt2c

#include "ir/ops/Common.h"

namespace gpt2c {

static llvm::Error evalNonZero(EvalContext &c) {
  const Tensor &x = c.input(0);
  int64_t rank = x.rank();
  std::vector<int64_t> found;
  for (int64_t i = 0, n = x.count(); i < n; ++i)
    if (x.asDouble(i) != 0) // NaN counts
      found.push_back(i);
  int64_t n = found.size();
  Tensor &out = c.allocate({rank, n});
  auto strides = rowMajorStrides(x.shape());
  for (int64_t axis = 0; axis < rank; ++axis)
    for (int64_t i = 0; i < n; ++i)
      out.data<int64_t>()[axis * n + i] = found[i] / strides[axis] % x.dim(axis);
  return llvm::Error::success();
}

const OpInfo opNonZero = {
    .code = OpCode::NonZero,
    .mnemonic = "non_zero",
    .summary =
        "y[axis, n] = the position along each axis of the n-th element that is not zero, i64",
    .operands = {{"x"}},
    .infer = [](InferContext &c) -> llvm::Error {
      c.setResult(DType::I64, {Dim(c.rank(0)), c.unknown(1)});
      return llvm::Error::success();
    },
    .eval = evalNonZero,
};

} // namespace gpt2c

#include "ir/ops/Ranks.h"

namespace gpt2c {

static llvm::Error inferAllReduce(InferContext &c) {
  if (llvm::Error e = checkRanks(c))
    return e;
  if (!isFloat(c.dtype(0)))
    return c.error("expects x of floating-point elements");
  c.setResult(c.dtype(0), Shape(c.shape(0)));
  return llvm::Error::success();
}

static llvm::Error evalAllReduce(EvalContext &c) {
  const Tensor &x = c.input(0);
  auto all = ofAllRanks(c, x);
  if (!all)
    return all.takeError();
  Tensor &out = c.allocate(x.shape());
  return dispatchFloat(c, x.dtype(), [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    const int64_t count = x.count();
    const T *from = all->template data<T>();
    T *y = out.data<T>();
    std::copy_n(from, count, y);
    for (int64_t r = 1; r < all->dim(0); ++r)
      for (int64_t i = 0; i < count; ++i)
        y[i] += from[r * count + i];
    return llvm::Error::success();
  });
}

const OpInfo opAllReduce = {
    .code = OpCode::AllReduce,
    .mnemonic = "all_reduce",
    .summary = "y = ((x of rank 0 + x of rank 1) + x of rank 2) + ..: in this order, so that every "
               "rank has the same bits",
    .operands = {{"x"}},
    .attrs = {ranksAttr()},
    .infer = inferAllReduce,
    .eval = evalAllReduce,
    .cost =
        [](const Op &op) {
          return Cost{Dim(op.intAttr("ranks") - 1) * elementCount(op.result()->type.shape),
                      ioBytes(op)};
        },
};

} // namespace gpt2c

#include "ir/ops/Common.h"

#include <cmath>

namespace gpt2c {

static llvm::Error inferSoftmax(InferContext &c) {
  if (auto axis = c.axis(c.op().intAttr("axis"), c.rank(0)); !axis)
    return axis.takeError();
  return inferFloatUnary(c);
}

/// A line of -infinity gives NaN.
static llvm::Error evalSoftmax(EvalContext &c) {
  const Tensor &x = c.input(0);
  int64_t axis = c.op().intAttr("axis");
  axis = axis < 0 ? axis + x.rank() : axis;
  int64_t size = x.dim(axis), inner = product(x.shape().drop_front(axis + 1));
  int64_t lines = size ? x.count() / size : 0;
  Tensor &out = c.allocate(x.shape());
  return dispatchFloat(c, x.dtype(), [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    for (int64_t line = 0; line < lines; ++line) {
      int64_t base = line / inner * size * inner + line % inner;
      const T *from = x.data<T>() + base;
      T *to = out.data<T>() + base;
      T top = from[0], sum = 0;
      for (int64_t i = 1; i < size; ++i)
        top = std::max(top, from[i * inner]);
      for (int64_t i = 0; i < size; ++i)
        sum += to[i * inner] = std::exp(from[i * inner] - top);
      for (int64_t i = 0; i < size; ++i)
        to[i * inner] /= sum;
    }
    return llvm::Error::success();
  });
}

const OpInfo opSoftmax = {
    .code = OpCode::Softmax,
    .mnemonic = "softmax",
    .summary = "y = e^x / sum of e^x along an axis",
    .operands = {{"x"}},
    .attrs = {{"axis", AttrKind::Int, Attr(int64_t(-1))}},
    .infer = inferSoftmax,
    .eval = evalSoftmax,
    .cost =
        [](const Op &op) {
          return Cost{Dim(5) * elementCount(op.result()->type.shape), ioBytes(op)};
        },
};

} // namespace gpt2c

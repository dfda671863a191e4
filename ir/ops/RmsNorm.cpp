#include "ir/ops/Common.h"
#include "ir/ops/Workers.h"

#include <cmath>

namespace gpt2c {

static llvm::Error inferRmsNorm(InferContext &c) {
  using enum ops::RmsNorm::Operand;
  if (c.rank(X) == 0 || c.rank(Scale) != 1)
    return c.error("scale must be a vector as long as the last axis of x");
  if (auto d = c.unify(c.shape(X).back(), c.shape(Scale)[0]); !d)
    return d.takeError();
  return inferFloatUnary(c);
}

static llvm::Error evalRmsNorm(EvalContext &c) {
  using enum ops::RmsNorm::Operand;
  const Tensor &x = c.input(X);
  int64_t size = x.dim(-1);
  double epsilon = c.op().floatAttr("epsilon");
  if (c.input(Scale).count() != size)
    return c.error("scale must be as long as the last axis of x");
  Tensor &out = c.allocate(x.shape());
  return dispatchFloat(c, x.dtype(), [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    const T *g = c.input(Scale).data<T>();
    const T *all = x.data<T>();
    T *results = out.data<T>();
    auto normalise = [&](int64_t row) {
      const T *from = all + row * size;
      T *to = results + row * size;
      double squares = 0;
      for (int64_t i = 0; i < size; ++i)
        squares += double(from[i]) * from[i];
      T r = static_cast<T>(1 / std::sqrt(squares / size + epsilon));
      for (int64_t i = 0; i < size; ++i)
        to[i] = from[i] * r * g[i];
    };
    const int64_t rows = size ? x.count() / size : 0, parts = partsOf(double(x.count()) * 8, rows);
    forParts(parts, [&](int64_t part) {
      for (int64_t row = rows * part / parts; row < rows * (part + 1) / parts; ++row)
        normalise(row);
    });
    return llvm::Error::success();
  });
}

const OpInfo opRmsNorm = {
    .code = OpCode::RmsNorm,
    .mnemonic = "rms_norm",
    .summary = "y = x / sqrt(mean of x^2 + epsilon) * scale over the last axis",
    .operands = {{"x"}, {"scale"}},
    .attrs = {{"epsilon", AttrKind::Float, Attr(1e-5)}},
    .infer = inferRmsNorm,
    .eval = evalRmsNorm,
    .cost =
        [](const Op &op) {
          return Cost{Dim(4) * elementCount(op.result()->type.shape), ioBytes(op)};
        },
};

} // namespace gpt2c

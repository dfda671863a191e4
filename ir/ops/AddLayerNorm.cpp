#include "ir/ops/Common.h"
#include "ir/ops/LayerNorm.h"

namespace gpt2c {

static llvm::Error infer(InferContext &c) {
  if (c.rank(0) == 0 || c.dtype(1) != c.dtype(0) || c.rank(1) != c.rank(0))
    return c.error("expects x and residual of one type");
  for (unsigned i = 0; i < c.rank(0); ++i)
    if (auto d = c.unify(c.shape(0)[i], c.shape(1)[i]); !d)
      return d.takeError();
  if (llvm::Error e = inferLayerNorm(c, -1, 2))
    return e;
  c.setResult(1, c.dtype(0), Shape(c.shape(0)));
  return llvm::Error::success();
}

static llvm::Error eval(EvalContext &c) {
  const Tensor &x = c.input(0), &r = c.input(1);
  if (x.shape() != r.shape())
    return c.error("shapes do not fit");
  Tensor sum(x.dtype(), x.shape());
  auto add = [&](auto tag) {
    using T = decltype(tag);
    for (int64_t i = 0; i < x.count(); ++i)
      sum.data<T>()[i] = x.data<T>()[i] + r.data<T>()[i];
    return llvm::Error::success();
  };
  if (llvm::Error e = dispatchFloat(c, x.dtype(), add))
    return e;
  auto y = evalLayerNorm(c, sum, -1, 2);
  if (!y)
    return y.takeError();
  c.output(0) = sum;
  c.output(1) = *y;
  return llvm::Error::success();
}

const OpInfo opAddLayerNorm = {
    .code = OpCode::AddLayerNorm,
    .mnemonic = "add_layer_norm",
    .summary = "(sum, y): sum = x + residual, y = layer_norm(sum) over the last axis",
    .operands = {{"x"}, {"residual"}, {"scale"}, {"bias", OperandSpec::Optional}},
    .attrs = {{"epsilon", AttrKind::Float, Attr(1e-5)}},
    .numResults = 2,
    .infer = infer,
    .eval = eval,
    .cost =
        [](const Op &op) {
          return Cost{Dim(9) * elementCount(op.result()->type.shape), ioBytes(op)};
        },
};

} // namespace gpt2c

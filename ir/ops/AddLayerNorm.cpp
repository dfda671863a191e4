#include "ir/ops/Common.h"
#include "ir/ops/LayerNorm.h"

namespace gpt2c {

static llvm::Error inferAddLayerNorm(InferContext &c) {
  using enum ops::AddLayerNorm::Operand;
  using enum ops::AddLayerNorm::Result;
  if (c.rank(X) == 0 || c.dtype(Residual) != c.dtype(X) || c.rank(Residual) != c.rank(X))
    return c.error("expects x and residual of one type");
  for (unsigned i = 0; i < c.rank(X); ++i)
    if (auto d = c.unify(c.shape(X)[i], c.shape(Residual)[i]); !d)
      return d.takeError();
  if (llvm::Error e = inferLayerNorm(c, -1, Scale))
    return e;
  c.setResult(Y, c.dtype(X), Shape(c.shape(X)));
  return llvm::Error::success();
}

static llvm::Error evalAddLayerNorm(EvalContext &c) {
  using enum ops::AddLayerNorm::Operand;
  using enum ops::AddLayerNorm::Result;
  const Tensor &x = c.input(X), &r = c.input(Residual);
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
  auto y = evalLayerNorm(c, sum, -1, Scale);
  if (!y)
    return y.takeError();
  c.output(Sum) = sum;
  c.output(Y) = *y;
  return llvm::Error::success();
}

const OpInfo opAddLayerNorm = {
    .code = OpCode::AddLayerNorm,
    .mnemonic = "add_layer_norm",
    .summary =
        "(sum, y): sum = x + residual, y = layer_norm(sum), or rms_norm(sum), over the last axis",
    .operands = {{"x"}, {"residual"}, {"scale"}, {"bias", OperandSpec::Optional}},
    .attrs = {{"epsilon", AttrKind::Float, Attr(1e-5)}, rmsAttr()},
    .numResults = 2,
    .infer = inferAddLayerNorm,
    .eval = evalAddLayerNorm,
    .cost =
        [](const Op &op) {
          return Cost{Dim(9) * elementCount(op.result()->type.shape), ioBytes(op)};
        },
};

} // namespace gpt2c

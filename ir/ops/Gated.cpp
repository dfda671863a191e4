#include "ir/ops/Activation.h"
#include "ir/ops/Common.h"
#include "ir/ops/Exponentials.h"
#include "ir/ops/Workers.h"

namespace gpt2c {

static llvm::Error inferGated(InferContext &c) {
  if (c.rank(0) < 1 || !isFloat(c.dtype(0)))
    return c.error("expects x[.., 2 n] of floating-point elements");
  if (!activationNamed(c.op().stringAttr("activation")))
    return c.error("there is no activation \"" + c.op().stringAttr("activation") + "\"");
  auto width = c.shape(0).back().constant();
  if (!width || *width % 2 != 0)
    return c.error("the last axis must have an even constant length");
  Shape shape(c.shape(0));
  shape.back() = Dim(*width / 2);
  c.setResult(c.dtype(0), shape);
  return llvm::Error::success();
}

/// to = silu(gate) * up
static void gateBySilu(const float *gate, const float *up, float *to, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    to[i] = -gate[i];
  exponentials(to, n);
  for (int64_t i = 0; i < n; ++i)
    to[i] = gate[i] / (1 + to[i]) * up[i];
}

static llvm::Error evalGated(EvalContext &c) {
  const Tensor &x = c.input(0);
  const int64_t n = x.dim(-1) / 2, step = c.op().boolAttr("interleaved") ? 2 : 1;
  llvm::SmallVector<int64_t> shape(x.shape());
  shape.back() = n;
  Tensor &out = c.allocate(shape);
  const Activation activation = *activationNamed(c.op().stringAttr("activation"));
  return dispatchFloat(c, x.dtype(), [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    const T *from = x.data<T>();
    T *results = out.data<T>();
    withActivation<T>(activation, [&](auto f) {
      auto gate = [&](int64_t row) {
        const T *gate = from + row * 2 * n, *up = gate + (step == 2 ? 1 : n);
        T *to = results + row * n;
        if constexpr (std::is_same_v<T, float>)
          if (activation == Activation::Silu && step == 1)
            return gateBySilu(gate, up, to, n);
        for (int64_t i = 0; i < n; ++i)
          to[i] = f(gate[i * step]) * up[i * step];
      };
      const int64_t rows = n ? x.count() / (2 * n) : 0;
      const int64_t parts = partsOf(double(rows * n) * 8, rows);
      forParts(parts, [&](int64_t part) {
        for (int64_t row = rows * part / parts; row < rows * (part + 1) / parts; ++row)
          gate(row);
      });
    });
    return llvm::Error::success();
  });
}

const OpInfo opGated = {
    .code = OpCode::Gated,
    .mnemonic = "gated",
    .summary = "y[.., i] = activation(x[.., i]) * x[.., n + i], i < n, with x of 2 n columns; "
               "interleaved: activation(x[.., 2 i]) * x[.., 2 i + 1]",
    .operands = {{"x"}},
    .attrs = {{"activation", AttrKind::String, Attr("silu"), activationNames},
              {"interleaved", AttrKind::Bool, Attr(false),
               "whether each gate stands beside what it gates"}},
    .infer = inferGated,
    .eval = evalGated,
    .cost =
        [](const Op &op) {
          return Cost{Dim(5) * elementCount(op.result()->type.shape), ioBytes(op)};
        },
};

} // namespace gpt2c

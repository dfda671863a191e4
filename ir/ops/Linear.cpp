#include "ir/ops/Activation.h"
#include "ir/ops/Common.h"
#include "ir/ops/StoredProduct.h"

#include <type_traits>

namespace gpt2c {

static llvm::Error inferLinear(InferContext &c) {
  using enum ops::Linear::Operand;
  if (!isFloat(c.dtype(X)) || c.dtype(W) != c.dtype(X))
    return c.error("expects x and w of one floating-point element type");
  if (c.rank(X) == 0 || c.rank(W) != 2)
    return c.error("expects x[..., K] and w[N, K]");
  if (auto k = c.unify(c.shape(X).back(), c.shape(W)[1]); !k)
    return k.takeError();
  Shape shape(c.shape(X));
  shape.back() = c.shape(W)[0];
  if (c.has(Bias)) {
    if (c.rank(Bias) != 1)
      return c.error("bias must be a vector");
    if (auto n = c.unify(shape.back(), c.shape(Bias)[0]); !n)
      return n.takeError();
  }
  if (c.has(Residual)) {
    if (c.rank(Residual) != shape.size())
      return c.error("residual must have the shape of the result");
    for (unsigned i = 0; i < shape.size(); ++i) {
      auto d = c.unify(shape[i], c.shape(Residual)[i]);
      if (!d)
        return d.takeError();
      shape[i] = *d;
    }
  }
  const std::string &activation = c.op().stringAttr("activation");
  if (!activationNamed(activation))
    return c.error("unknown activation \"" + activation + "\"");
  const Attr *dtype = c.op().attr("dtype");
  if (dtype && !isFloat(std::get<DType>(*dtype)))
    return c.error("the result must be floating point");
  c.setResult(dtype ? std::get<DType>(*dtype) : c.dtype(X), std::move(shape));
  return llvm::Error::success();
}

/// y = x w^T; w may be as it is stored.
template <typename T> static void multiply(EvalContext &c, T *y, int64_t m, int64_t n, int64_t k) {
  using enum ops::Linear::Operand;
  const Tensor &x = c.input(X), &w = c.input(W);
  const Matrix<const T> left{x.data<T>(), k};
  if constexpr (std::is_same_v<T, float>) {
    if (w.dtype() == DType::F16)
      return storedProduct<Half>(left, {w.data<Half>(), k, true}, {y, n}, m, n, k);
    if (w.dtype() == DType::BF16) {
      const Matrix<const BFloat> right{w.data<BFloat>(), k, true};
      const bool exact = c.op().operand(X)->type.dtype == DType::BF16;
      return exact ? bfloatProduct(left, right, {y, n}, m, n, k)
                   : storedProduct(left, right, {y, n}, m, n, k);
    }
  }
  matrixProduct<T>(left, {w.data<T>(), k, true}, {y, n}, m, n, k, false);
}

static llvm::Error evalLinear(EvalContext &c) {
  using enum ops::Linear::Operand;
  const Tensor &x = c.input(X), &w = c.input(W);
  int64_t k = w.dim(1), n = w.dim(0), m = product(x.shape().drop_back());
  llvm::SmallVector<int64_t, 4> shape(x.shape());
  shape.back() = n;
  if (x.dim(-1) != k || (c.has(Bias) && c.input(Bias).count() != n) ||
      (c.has(Residual) && c.input(Residual).shape() != llvm::ArrayRef(shape)))
    return c.error("shapes do not fit");
  Tensor &out = c.allocate(shape);
  return dispatchFloat(c, x.dtype(), [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    T *y = out.data<T>();
    multiply(c, y, m, n, k);
    if (c.has(Bias))
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j)
          y[i * n + j] += c.input(Bias).data<T>()[j];
    activate(*activationNamed(c.op().stringAttr("activation")), y, m * n);
    if (c.has(Residual))
      for (int64_t i = 0; i < m * n; ++i)
        y[i] += c.input(Residual).data<T>()[i];
    return llvm::Error::success();
  });
}

static Cost costLinear(const Op &op) {
  using enum ops::Linear::Operand;
  return {Dim(2) * elementCount(op.result()->type.shape) * op.operand(W)->type.shape[1],
          ioBytes(op)};
}

const OpInfo opLinear = {
    .code = OpCode::Linear,
    .mnemonic = "linear",
    .summary = "y = activation(x w^T + bias) + residual",
    .operands = {{"x"},
                 {.name = "w", .stored = true},
                 {"bias", OperandSpec::Optional},
                 {"residual", OperandSpec::Optional}},
    .attrs = {{"activation", AttrKind::String, Attr("none"), activationNames},
              {.name = "dtype",
               .kind = AttrKind::DType,
               .doc = "of the result; absent: that of x",
               .optional = true}},
    .infer = inferLinear,
    .eval = evalLinear,
    .cost = costLinear,
};

} // namespace gpt2c

#include "ir/ops/Common.h"

#include <cmath>

namespace gpt2c {

static llvm::Error inferPow(InferContext &c) {
  using enum ops::Pow::Operand;
  if (c.dtype(A) == DType::Bool || c.dtype(B) == DType::Bool)
    return c.error("expects numeric operands");
  return inferBroadcast(c);
}

/// Integer powers wrap; a negative exponent gives 1/a^|b| toward zero.
template <typename T> static T integerPower(T base, int64_t exponent) {
  if (exponent < 0)
    return base == 1                              ? T(1)
           : base == T(-1) && std::is_signed_v<T> ? T(exponent % 2 ? -1 : 1)
                                                  : T(0);
  T result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1)
      result = wrapMul(result, base);
    base = wrapMul(base, base);
  }
  return result;
}

static llvm::Error evalPow(EvalContext &c) {
  using enum ops::Pow::Operand;
  const Tensor &a = c.input(A);
  Tensor b = c.input(B);
  auto shape = broadcastShapes(a.shape(), b.shape());
  if (!shape)
    return c.error("shapes do not broadcast");
  bool integerExponent = isInteger(b.dtype());
  b = b.cast(integerExponent ? DType::I64 : DType::F64);
  Tensor &out = c.allocate(*shape);
  return dispatch(c, a.dtype(), [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    const T *x = a.data<T>();
    T *z = out.data<T>();
    if (b.count() == 1 && a.count() == out.count() && std::is_floating_point_v<T>) {
      double y = b.asDouble(0);
      for (int64_t i = 0, n = out.count(); i < n; ++i)
        z[i] = y == 2   ? wrapMul(x[i], x[i])
               : y == 3 ? wrapMul(wrapMul(x[i], x[i]), x[i])
                        : T(std::pow(x[i], T(y)));
      return llvm::Error::success();
    }
    forEachBroadcast(*shape, {a.shape(), b.shape()}, [&](int64_t o, llvm::ArrayRef<int64_t> i) {
      if constexpr (std::is_floating_point_v<T>)
        z[o] = std::pow(x[i[0]], static_cast<T>(b.asDouble(i[1])));
      else if (integerExponent)
        z[o] = integerPower(x[i[0]], b.data<int64_t>()[i[1]]);
      else
        z[o] = static_cast<T>(std::pow(double(x[i[0]]), b.data<double>()[i[1]]));
    });
    return llvm::Error::success();
  });
}

const OpInfo opPow = {
    .code = OpCode::Pow,
    .mnemonic = "pow",
    .summary = "y = a^b in the type of a",
    .operands = {{"a"}, {"b"}},
    .traits = Elementwise,
    .infer = inferPow,
    .eval = evalPow,
    .cost = elementwiseCost,
};

} // namespace gpt2c

#include "ir/ops/Common.h"

namespace gpt2c {

/// Integer division by zero is an error; the most negative number over -1 wraps.
static llvm::Error evalDiv(EvalContext &c) {
  using enum ops::Div::Operand;
  const Tensor &b = c.input(B);
  if (!isFloat(b.dtype()))
    for (int64_t i = 0, n = b.count(); i < n; ++i)
      if (b.asInt(i) == 0)
        return c.error("integer division by zero");
  return evalBinary(c, [](auto x, auto y) {
    using T = decltype(x);
    if constexpr (std::is_floating_point_v<T>)
      return x / y;
    else
      return y == T(-1) && std::is_signed_v<T> ? wrapSub(T(0), x) : static_cast<T>(x / y);
  });
}

const OpInfo opDiv = {
    .code = OpCode::Div,
    .mnemonic = "div",
    .summary = "y = a / b; integers toward zero",
    .operands = {{"a"}, {"b"}},
    .traits = Elementwise,
    .infer = [](InferContext &c) { return inferArithmetic(c, divDims); },
    .eval = evalDiv,
    .cost = elementwiseCost,
};

} // namespace gpt2c

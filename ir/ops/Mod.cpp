#include "ir/ops/Common.h"

#include <cmath>

namespace gpt2c {

static llvm::Error inferMod(InferContext &c) {
  using enum ops::Mod::Operand;
  if (isFloat(c.dtype(A)) && c.op().boolAttr("fmod") == false)
    return c.error("floating-point operands need fmod=true");
  return inferArithmetic(
      c, [](const Dim &a, const Dim &b, const DimBounds &bounds) -> std::optional<Dim> {
        auto y = b.constant();
        if (!y || *y <= 0 || a.range(bounds).lo < 0) // where both definitions agree
          return std::nullopt;
        auto quotient = divDims(a, b, bounds);
        return quotient ? subDims(a, *quotient * b) : std::nullopt;
      });
}

static llvm::Error evalMod(EvalContext &c) {
  using enum ops::Mod::Operand;
  const Tensor &b = c.input(B);
  if (!isFloat(b.dtype()))
    for (int64_t i = 0, n = b.count(); i < n; ++i)
      if (b.asInt(i) == 0)
        return c.error("integer division by zero");
  bool fmod = c.op().boolAttr("fmod");
  return evalBinary(c, [fmod](auto x, auto y) {
    using T = decltype(x);
    if constexpr (std::is_floating_point_v<T>) {
      return std::fmod(x, y);
    } else {
      if (std::is_signed_v<T> && y == T(-1))
        return T(0);
      T r = static_cast<T>(x % y);
      return !fmod && r != 0 && (r < 0) != (y < 0) ? static_cast<T>(r + y) : r;
    }
  });
}

const OpInfo opMod = {
    .code = OpCode::Mod,
    .mnemonic = "mod",
    .summary = "y = a mod b with the sign of b; fmod: with the sign of a",
    .operands = {{"a"}, {"b"}},
    .attrs = {{"fmod", AttrKind::Bool, Attr(false)}},
    .traits = Elementwise,
    .infer = inferMod,
    .eval = evalMod,
    .cost = elementwiseCost,
};

} // namespace gpt2c

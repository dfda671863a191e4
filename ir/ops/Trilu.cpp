#include "ir/ops/Common.h"

#include <cstring>

namespace gpt2c {

static llvm::Error evalTrilu(EvalContext &c) {
  using enum ops::Trilu::Operand;
  const Tensor &x = c.input(X);
  int64_t k = c.has(K) ? c.input(K).asInt(0) : 0;
  bool upper = c.op().boolAttr("upper");
  Tensor &out = c.allocate(x.shape());
  std::memset(out.raw(), 0, out.bytes());
  int64_t rows = x.dim(-2), columns = x.dim(-1);
  if (x.count() == 0)
    return llvm::Error::success();
  // Row r keeps columns >= r + k (upper) or <= r + k (lower).
  k = std::clamp(k, -rows - 1, columns + 1);
  unsigned size = byteSize(x.dtype());
  for (int64_t row = 0, n = x.count() / columns; row < n; ++row) {
    int64_t diagonal = row % rows + k;
    int64_t from = upper ? std::clamp<int64_t>(diagonal, 0, columns) : 0;
    int64_t to = upper ? columns : std::clamp<int64_t>(diagonal + 1, 0, columns);
    int64_t at = (row * columns + from) * size;
    std::memcpy(static_cast<char *>(out.raw()) + at, static_cast<const char *>(x.raw()) + at,
                (to - from) * size);
  }
  return llvm::Error::success();
}

const OpInfo opTrilu = {
    .code = OpCode::Trilu,
    .mnemonic = "trilu",
    .summary =
        "y = the upper (or lower) triangle of the last two axes from diagonal k, zeros elsewhere",
    .operands = {{"x"}, {"k", OperandSpec::Optional}},
    .attrs = {{"upper", AttrKind::Bool, Attr(true)}},
    .infer = [](InferContext &c) -> llvm::Error {
      if (c.rank(ops::Trilu::X) < 2)
        return c.error("needs at least two axes");
      return inferSameAsOperand(c);
    },
    .eval = evalTrilu,
};

} // namespace gpt2c

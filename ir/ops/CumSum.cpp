#include "ir/ops/Common.h"

namespace gpt2c {

static llvm::Error evalCumSum(EvalContext &c) {
  using enum ops::CumSum::Operand;
  const Tensor &x = c.input(X);
  int64_t axis = c.input(Axis).asInt(0), rank = x.rank();
  if (axis < -rank || axis >= rank)
    return c.error("axis " + llvm::Twine(axis) + " is out of range");
  axis = axis < 0 ? axis + rank : axis;
  bool exclusive = c.op().boolAttr("exclusive"), reverse = c.op().boolAttr("reverse");
  int64_t size = x.dim(axis), inner = product(x.shape().drop_front(axis + 1));
  Tensor &out = c.allocate(x.shape());
  int64_t lines = size ? x.count() / size : 0;
  return dispatch(c, x.dtype(), [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    for (int64_t line = 0; line < lines; ++line) {
      int64_t base = line / inner * size * inner + line % inner;
      T sum = 0;
      for (int64_t k = 0; k < size; ++k) {
        int64_t i = base + (reverse ? size - 1 - k : k) * inner;
        T v = x.data<T>()[i], next = wrapAdd(sum, v);
        out.data<T>()[i] = exclusive ? sum : next;
        sum = next;
      }
    }
    return llvm::Error::success();
  });
}

const OpInfo opCumSum = {
    .code = OpCode::CumSum,
    .mnemonic = "cumsum",
    .summary =
        "y[i] = x[0] + ... + x[i] along an axis; exclusive: without x[i]; reverse: from the end",
    .operands = {{"x"}, {"axis"}},
    .attrs = {{"exclusive", AttrKind::Bool, Attr(false)}, {"reverse", AttrKind::Bool, Attr(false)}},
    .infer = inferNumericUnary,
    .eval = evalCumSum,
    .cost = elementwiseCost,
};

} // namespace gpt2c

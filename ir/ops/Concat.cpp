#include "ir/ops/Common.h"

#include <cstring>

namespace gpt2c {

static llvm::Error inferConcat(InferContext &c) {
  if (c.numOperands() == 0)
    return c.error("needs an operand");
  auto axis = c.axis(c.op().intAttr("axis"), c.rank(0));
  if (!axis)
    return axis.takeError();
  Shape shape(c.shape(0));
  for (unsigned i = 1; i < c.numOperands(); ++i) {
    if (c.dtype(i) != c.dtype(0) || c.rank(i) != c.rank(0))
      return c.error("operands differ in element type or rank");
    for (unsigned a = 0; a < shape.size(); ++a) {
      const Dim of = c.shape(i)[a];
      auto d = a == *axis ? shape[a] + of : c.unify(shape[a], of);
      if (!d)
        return d.takeError();
      // Parts that are equal for some lengths alone are looked at when it runs.
      const bool sure =
          a == *axis || shape[a] == of || (shape[a].isPolynomial() && of.isPolynomial());
      shape[a] = sure ? *d : c.unknown(a);
    }
  }
  c.setResult(c.dtype(0), std::move(shape));
  forwardContent(c, c.numOperands());
  return llvm::Error::success();
}

static llvm::Error evalConcat(EvalContext &c) {
  const Tensor &first = c.input(0);
  int64_t axis = c.op().intAttr("axis");
  axis = axis < 0 ? axis + first.rank() : axis;
  llvm::SmallVector<int64_t, 4> shape(first.shape());
  shape[axis] = 0;
  for (unsigned i = 0; i < c.numInputs(); ++i) {
    const Tensor &t = c.input(i);
    if (t.dtype() != first.dtype() || t.rank() != first.rank())
      return c.error("operands differ in element type or rank");
    for (unsigned a = 0; a < shape.size(); ++a)
      if (a != axis && t.dim(a) != first.dim(a))
        return c.error("operands differ in axis " + llvm::Twine(a));
    shape[axis] += t.dim(axis);
  }
  Tensor &out = c.allocate(shape);
  int64_t rows = product(llvm::ArrayRef(shape).take_front(axis));
  int64_t element = product(llvm::ArrayRef(shape).drop_front(axis + 1)) * byteSize(out.dtype());
  int64_t column = 0;
  for (unsigned i = 0; i < c.numInputs(); ++i) {
    int64_t width = c.input(i).dim(axis) * element;
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(static_cast<char *>(out.raw()) + r * shape[axis] * element + column,
                  static_cast<const char *>(c.input(i).raw()) + r * width, width);
    column += width;
  }
  return llvm::Error::success();
}

const OpInfo opConcat = {
    .code = OpCode::Concat,
    .mnemonic = "concat",
    .summary = "y = the operands one after the other along an axis",
    .operands = {{"xs", OperandSpec::Variadic}},
    .attrs = {{"axis", AttrKind::Int}},
    .traits = DataMovement,
    .infer = inferConcat,
    .eval = evalConcat,
};

} // namespace gpt2c

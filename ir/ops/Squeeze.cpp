#include "ir/ops/Common.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

static llvm::Error inferSqueeze(InferContext &c) {
  llvm::SmallVector<bool, 6> dropped(c.rank(0), false);
  auto axes = c.ints("axes");
  if (!axes)
    return axes.takeError();
  for (int64_t a : *axes) {
    auto axis = c.axis(a, c.rank(0));
    if (!axis)
      return axis.takeError();
    auto size = c.shape(0)[*axis].constant();
    if (size && *size != 1)
      return c.error("axis " + llvm::Twine(a) + " has size " + llvm::Twine(*size) + ", not 1");
    if (!size && inferredEqualities)
      inferredEqualities->push_back({c.shape(0)[*axis], Dim(1)});
    dropped[*axis] = true;
  }
  Shape shape;
  for (unsigned i = 0; i < c.rank(0); ++i)
    if (axes->empty() ? !(c.shape(0)[i] == Dim(1)) : !dropped[i])
      shape.push_back(c.shape(0)[i]);
  c.setResult(c.dtype(0), std::move(shape));
  if (c.content(0))
    c.setContent(*c.content(0));
  return llvm::Error::success();
}

static llvm::Error evalSqueeze(EvalContext &c) {
  const Tensor &x = c.input(0);
  std::vector<int64_t> axes = c.op().intsAttr("axes");
  for (int64_t &a : axes)
    a = a < 0 ? a + x.rank() : a;
  llvm::SmallVector<int64_t, 4> shape;
  for (unsigned i = 0; i < x.rank(); ++i) {
    bool drop = axes.empty() ? x.dim(i) == 1 : llvm::is_contained(axes, int64_t(i));
    if (!drop)
      shape.push_back(x.dim(i));
    else if (x.dim(i) != 1)
      return c.error("axis " + llvm::Twine(i) + " has not size 1");
  }
  c.output() = x.reshaped(shape);
  return llvm::Error::success();
}

const OpInfo opSqueeze = {
    .code = OpCode::Squeeze,
    .mnemonic = "squeeze",
    .summary = "y = x without the given axes, which have size 1; all such axes when none is given",
    .operands = {{"x"}},
    .attrs = {{"axes", AttrKind::Dims, Attr(Dims())}},
    .traits = DataMovement,
    .infer = inferSqueeze,
    .eval = evalSqueeze,
};

} // namespace gpt2c

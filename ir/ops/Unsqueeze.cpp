#include "ir/ops/Common.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// The axes as positions in a result of rank `rank`, sorted; none when one is out of range or
/// repeated.
static std::optional<std::vector<int64_t>> positions(std::vector<int64_t> axes, int64_t rank) {
  for (int64_t &a : axes) {
    a = a < 0 ? a + rank : a;
    if (a < 0 || a >= rank)
      return std::nullopt;
  }
  llvm::sort(axes);
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end())
    return std::nullopt;
  return axes;
}

static llvm::Error inferUnsqueeze(InferContext &c) {
  auto axes = c.ints("axes");
  if (!axes)
    return axes.takeError();
  auto at = positions(*axes, c.rank(0) + axes->size());
  if (!at)
    return c.error("axes are out of range or repeated");
  Shape shape(c.shape(0));
  for (int64_t a : *at)
    shape.insert(shape.begin() + a, 1);
  c.setResult(c.dtype(0), std::move(shape));
  if (c.content(0))
    c.setContent(*c.content(0));
  return llvm::Error::success();
}

static llvm::Error evalUnsqueeze(EvalContext &c) {
  std::vector<int64_t> axes = c.op().intsAttr("axes");
  llvm::SmallVector<int64_t, 4> shape(c.input(0).shape());
  auto at = positions(axes, shape.size() + axes.size());
  if (!at)
    return c.error("axes are out of range or repeated");
  for (int64_t a : *at)
    shape.insert(shape.begin() + a, 1);
  c.output() = c.input(0).reshaped(shape);
  return llvm::Error::success();
}

const OpInfo opUnsqueeze = {
    .code = OpCode::Unsqueeze,
    .mnemonic = "unsqueeze",
    .summary = "y = x with axes of size 1 inserted at the given positions of y",
    .operands = {{"x"}},
    .attrs = {{"axes", AttrKind::Dims}},
    .traits = DataMovement,
    .infer = inferUnsqueeze,
    .eval = evalUnsqueeze,
};

} // namespace gpt2c

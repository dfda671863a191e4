#include "ir/ops/Common.h"

namespace gpt2c {

static llvm::Error infer(InferContext &c) {
  unsigned rank = c.rank(0);
  auto perm = c.ints("perm");
  if (!perm)
    return perm.takeError();
  Shape shape;
  llvm::SmallVector<bool, 6> seen(rank, false);
  for (int64_t p : *perm) {
    if (p < 0 || p >= rank || seen[p])
      return c.error("perm is no permutation of the axes");
    seen[p] = true;
    shape.push_back(c.shape(0)[p]);
  }
  if (perm->size() != rank)
    return c.error("perm is no permutation of the axes");
  c.setResult(c.dtype(0), std::move(shape));
  forwardContent(c);
  return llvm::Error::success();
}

static llvm::Error eval(EvalContext &c) {
  const Tensor &x = c.input(0);
  auto strides = rowMajorStrides(x.shape());
  llvm::SmallVector<int64_t, 4> shape, moved;
  for (int64_t p : c.op().intsAttr("perm")) {
    shape.push_back(x.dim(p));
    moved.push_back(strides[p]);
  }
  copyStrided(x, 0, moved, c.allocate(shape));
  return llvm::Error::success();
}

const OpInfo opTranspose = {
    .code = OpCode::Transpose,
    .mnemonic = "transpose",
    .summary = "axis i of y is axis perm[i] of x",
    .operands = {{"x"}},
    .attrs = {{"perm", AttrKind::Dims}},
    .traits = DataMovement,
    .infer = infer,
    .eval = eval,
};

} // namespace gpt2c

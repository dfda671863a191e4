#include "ir/ops/Common.h"

namespace gpt2c {

static llvm::Error inferTile(InferContext &c) {
  using enum ops::Tile::Operand;
  if (!listGiven(c.op(), "repeats", Repeats))
    return c.error("needs the operand or the attribute 'repeats'");
  auto repeats = knownList(c, "repeats", Repeats);
  Shape shape;
  if (repeats && repeats->size() != c.rank(X))
    return c.error("needs one repeat per axis");
  for (unsigned i = 0; i < c.rank(X); ++i)
    shape.push_back(repeats ? c.shape(X)[i] * (*repeats)[i] : c.unknown(i));
  c.setResult(c.dtype(X), std::move(shape));
  forwardContent(c);
  return llvm::Error::success();
}

static llvm::Error evalTile(EvalContext &c) {
  using enum ops::Tile::Operand;
  auto repeats = listValue(c, "repeats", Repeats);
  if (!repeats)
    return repeats.takeError();
  const Tensor &x = c.input(X);
  if (repeats->size() != x.rank())
    return c.error("needs one repeat per axis");
  // As a strided copy: each axis becomes (repeat, size), with stride 0 for the repeat.
  auto from = rowMajorStrides(x.shape());
  llvm::SmallVector<int64_t, 8> shape, split, strides;
  for (unsigned i = 0; i < x.rank(); ++i) {
    if ((*repeats)[i] < 0)
      return c.error("negative repeat");
    shape.push_back(x.dim(i) * (*repeats)[i]);
    split.append({(*repeats)[i], x.dim(i)});
    strides.append({0, from[i]});
  }
  Tensor &out = c.allocate(split);
  copyStrided(x, 0, strides, out);
  out = out.reshaped(shape);
  return llvm::Error::success();
}

const OpInfo opTile = {
    .code = OpCode::Tile,
    .mnemonic = "tile",
    .summary = "y = x repeated along each axis",
    .operands = {{"x"}, {"repeats", OperandSpec::Optional}},
    .attrs = {{.name = "repeats",
               .kind = AttrKind::Dims,
               .doc = "instead of the operand",
               .optional = true}},
    .traits = DataMovement,
    .infer = inferTile,
    .eval = evalTile,
};

} // namespace gpt2c

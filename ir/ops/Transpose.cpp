#include "ir/ops/Common.h"

#include "llvm/Support/Parallel.h"

#include <algorithm>

namespace gpt2c {

static llvm::Error inferTranspose(InferContext &c) {
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

/// y[j, i] = x[i, j], in squares that stay in the cache: weights are transposed so.
template <typename Word> static void transposeMatrix(const Tensor &x, Tensor &y) {
  constexpr int64_t side = 64;
  const int64_t rows = x.dim(0), columns = x.dim(1);
  const Word *from = x.data<Word>();
  Word *to = y.data<Word>();
  llvm::parallelFor(0, (columns + side - 1) / side, [&](size_t strip) {
    const int64_t first = strip * side, last = std::min(columns, first + side);
    for (int64_t top = 0; top < rows; top += side)
      for (int64_t j = first; j < last; ++j)
        for (int64_t i = top, bottom = std::min(rows, top + side); i < bottom; ++i)
          to[j * rows + i] = from[i * columns + j];
  });
}

static llvm::Error evalTranspose(EvalContext &c) {
  const Tensor &x = c.input(0);
  if (x.rank() == 2 && c.op().intsAttr("perm")[0] == 1) {
    Tensor &y = c.allocate({x.dim(1), x.dim(0)});
    withWord(byteSize(x.dtype()), [&](auto tag) { transposeMatrix<decltype(tag)>(x, y); });
    return llvm::Error::success();
  }
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
    .infer = inferTranspose,
    .eval = evalTranspose,
};

} // namespace gpt2c

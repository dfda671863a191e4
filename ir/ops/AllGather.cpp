#include "ir/ops/Ranks.h"

#include <cstring>

namespace gpt2c {

static llvm::Error inferAllGather(InferContext &c) {
  if (llvm::Error e = checkRanks(c))
    return e;
  auto axis = c.axis(c.op().intAttr("axis"), c.rank(0));
  if (!axis)
    return axis.takeError();
  Shape shape(c.shape(0));
  shape[*axis] = shape[*axis] * Dim(c.op().intAttr("ranks"));
  c.setResult(c.dtype(0), std::move(shape));
  return llvm::Error::success();
}

static llvm::Error evalAllGather(EvalContext &c) {
  const Tensor &x = c.input(0);
  auto all = ofAllRanks(c, x);
  if (!all)
    return all.takeError();
  const int64_t given = c.op().intAttr("axis"), axis = given < 0 ? given + x.rank() : given;
  const int64_t ranks = all->dim(0), outer = product(x.shape().take_front(axis));
  const int64_t run = outer ? int64_t(x.bytes()) / outer : 0; // of one rank
  llvm::SmallVector<int64_t, 4> shape(x.shape());
  shape[axis] *= ranks;
  Tensor &out = c.allocate(shape);
  const char *from = static_cast<const char *>(std::as_const(*all).raw());
  char *to = static_cast<char *>(out.raw());
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t r = 0; r < ranks; ++r)
      std::memcpy(to + (o * ranks + r) * run, from + (r * outer + o) * run, run);
  return llvm::Error::success();
}

const OpInfo opAllGather = {
    .code = OpCode::AllGather,
    .mnemonic = "all_gather",
    .summary = "y = x of rank 0, x of rank 1, .. one behind the other along an axis",
    .operands = {{"x"}},
    .attrs = {{"axis", AttrKind::Int, Attr(int64_t(-1))}, ranksAttr()},
    .traits = DataMovement,
    .infer = inferAllGather,
    .eval = evalAllGather,
};

} // namespace gpt2c

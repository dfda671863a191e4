#include "ir/ops/Ranks.h"

#include <algorithm>
#include <cstring>

namespace gpt2c {

static llvm::Error inferRankPart(InferContext &c) {
  if (llvm::Error e = checkRanks(c))
    return e;
  auto axis = c.axis(c.op().intAttr("axis"), c.rank(0));
  if (!axis)
    return axis.takeError();
  auto units = c.ints("units");
  if (!units)
    return units.takeError();
  const int64_t unit = c.op().intAttr("unit"), ranks = c.op().intAttr("ranks");
  const auto size = c.shape(0)[*axis].constant();
  if (!size || unit < 1 || unit > *size)
    return c.error("an axis of " + c.shape(0)[*axis].str() + " has no units of " +
                   llvm::Twine(unit));
  if (units->empty() || int64_t(units->size()) % ranks != 0)
    return c.error(llvm::Twine(units->size()) + " units are not as many for each of " +
                   llvm::Twine(ranks) + " ranks");
  for (int64_t u : *units)
    if (u < -1 || u > (*size - 1) / unit)
      return c.error("there is no unit " + llvm::Twine(u) + " of " + llvm::Twine(unit) +
                     " in an axis of " + llvm::Twine(*size));
  Shape shape(c.shape(0));
  shape[*axis] = Dim(unit * (int64_t(units->size()) / ranks));
  c.setResult(c.dtype(0), std::move(shape));
  return llvm::Error::success();
}

/// Whether units follow each other and are whole, so that they are one run of `size` elements.
static bool isOneRun(llvm::ArrayRef<int64_t> units, int64_t unit, int64_t size) {
  for (size_t i = 0; i < units.size(); ++i)
    if (units[i] != units[0] + int64_t(i) || units[i] < 0)
      return false;
  return (units.back() + 1) * unit <= size;
}

static llvm::Error evalRankPart(EvalContext &c) {
  auto rank = rankOf(c);
  if (!rank)
    return rank.takeError();
  const Tensor &x = c.input(0);
  const std::vector<int64_t> all = c.op().intsAttr("units");
  const int64_t count = int64_t(all.size()) / c.op().intAttr("ranks");
  const llvm::ArrayRef<int64_t> units = llvm::ArrayRef(all).slice(*rank * count, count);
  const int64_t given = c.op().intAttr("axis"), axis = given < 0 ? given + x.rank() : given;
  const int64_t unit = c.op().intAttr("unit"), size = x.dim(axis);
  const int64_t outer = product(x.shape().take_front(axis));
  const int64_t element = product(x.shape().drop_front(axis + 1)) * byteSize(x.dtype());
  llvm::SmallVector<int64_t, 4> shape(x.shape());
  shape[axis] = unit * count;
  const char *from = static_cast<const char *>(x.raw());
  if (outer == 1 && isOneRun(units, unit, size)) { // a view
    c.output() =
        Tensor(x.dtype(), shape, from + units[0] * unit * element, std::make_shared<Tensor>(x));
    return llvm::Error::success();
  }
  Tensor &out = c.allocate(shape);
  char *to = static_cast<char *>(out.raw());
  std::memset(to, 0, out.bytes());
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < count; ++i)
      if (const int64_t first = units[i] * unit; units[i] >= 0)
        std::memcpy(to + (o * count + i) * unit * element, from + (o * size + first) * element,
                    std::min(unit, size - first) * element);
  return llvm::Error::success();
}

const OpInfo opRankPart = {
    .code = OpCode::RankPart,
    .mnemonic = "rank_part",
    .summary = "y = what a rank has of x along an axis. The axis is units of so many elements, the "
               "last of which may be cut off; units lists the first rank's, then as many of the "
               "second, and so on, -1 for one of zeros. What is cut off is zeros, too",
    .operands = {{"x"}},
    .attrs = {{"axis", AttrKind::Int, Attr(int64_t(0))},
              {"unit", AttrKind::Int},
              {"units", AttrKind::Dims},
              ranksAttr()},
    .traits = DataMovement,
    .infer = inferRankPart,
    .eval = evalRankPart,
};

} // namespace gpt2c

#include "ir/ops/Slice.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// Exporters write "to the end" as any number from here on.
constexpr int64_t farEnd = INT32_MAX;

/// The largest numbers stand for "all the rest", backwards too.
static bool isNoEnd(int64_t end) { return end == INT32_MAX || end == INT64_MAX; }

std::optional<SlicedPart> slicedPart(const Dim &start, const Dim &end, const Dim &step,
                                     const Dim &size, const DimBounds &bounds) {
  const auto s = step.constant();
  if (!s || *s == 0)
    return std::nullopt;
  const bool forward = *s > 0;
  // Forward both bounds lie in [0, size]; backwards the first in [0, size - 1] and the last, which
  // is left out, in [-1, size - 1]. Of an empty axis either way nothing is left.
  const Dim high = forward ? size : size - Dim(1);
  auto position = [&](const Dim &bound, int64_t least) {
    const Dim low(least);
    auto clamped = [&](const Dim &at) {
      return Dim::min(Dim::max(at, low, bounds), high, bounds).within(bounds);
    };
    if (auto v = bound.constant(); v && (*v >= farEnd || *v <= -farEnd))
      return *v > 0 ? high : clamped(low);
    const DimRange range = bound.range(bounds);
    if (range.hi < 0 || range.lo >= 0)
      return clamped(range.hi < 0 ? size + bound : bound);
    return Dim::select(bound, clamped(size + bound), clamped(bound), bounds);
  };
  const bool toTheBegin = !forward && isNoEnd(end.constant().value_or(0));
  const Dim first = position(start, 0),
            last = position(toTheBegin ? Dim(-farEnd) : end, forward ? 0 : -1);
  Dim span = Dim::positive(forward ? last - first : first - last, bounds);
  return SlicedPart{first, Dim::floorDiv(span + Dim(std::abs(*s) - 1), std::abs(*s), bounds)};
}

static llvm::Error inferSlice(InferContext &c) {
  using enum ops::Slice::Operand;
  if (!listGiven(c.op(), "starts", Starts) || !listGiven(c.op(), "ends", Ends))
    return c.error("needs operands or attributes 'starts' and 'ends'");
  auto starts = knownList(c, "starts", Starts), ends = knownList(c, "ends", Ends),
       axes = knownList(c, "axes", Axes), steps = knownList(c, "steps", Steps);
  unsigned rank = c.rank(X);
  Shape shape(c.shape(X));
  bool axesKnown = axes || !listGiven(c.op(), "axes", Axes),
       stepsKnown = steps || !listGiven(c.op(), "steps", Steps);
  if (!starts || !ends || !axesKnown || !stepsKnown) {
    for (unsigned i = 0; i < rank; ++i)
      if (!(shape[i] == Dim(1)) && (!axes || llvm::any_of(*axes, [&](const Dim &a) {
            return a == Dim(i) || a == Dim(int64_t(i) - rank);
          })))
        shape[i] = c.unknown(i);
    c.setResult(c.dtype(X), std::move(shape));
    return llvm::Error::success();
  }
  size_t n = starts->size();
  if (ends->size() != n || (axes && axes->size() != n) || (steps && steps->size() != n) ||
      (!axes && n > rank))
    return c.error("starts, ends, axes and steps differ in length");
  for (size_t i = 0; i < n; ++i) {
    if (axes && !(*axes)[i].isConstant())
      return c.error("axes must be constants");
    auto axis = c.axis(axes ? *(*axes)[i].constant() : i, rank);
    if (!axis)
      return axis.takeError();
    Dim step = steps ? (*steps)[i] : Dim(1);
    if (step == Dim(0))
      return c.error("a step of 0");
    auto part = slicedPart((*starts)[i], (*ends)[i], step, c.shape(X)[*axis], c.bounds());
    shape[*axis] = part ? part->count : c.unknown(*axis);
  }
  c.setResult(c.dtype(X), std::move(shape));
  forwardContent(c);
  return llvm::Error::success();
}

static llvm::Error evalSlice(EvalContext &c) {
  using enum ops::Slice::Operand;
  auto starts = listValue(c, "starts", Starts), ends = listValue(c, "ends", Ends),
       axes = listValue(c, "axes", Axes), steps = listValue(c, "steps", Steps);
  for (auto *list : {&starts, &ends, &axes, &steps})
    if (!*list)
      return list->takeError();
  const Tensor &x = c.input(X);
  int64_t rank = x.rank();
  llvm::SmallVector<int64_t, 4> shape(x.shape()), strides = rowMajorStrides(x.shape());
  int64_t offset = 0;
  size_t n = starts->size();
  if (ends->size() != n || (!axes->empty() && axes->size() != n) ||
      (!steps->empty() && steps->size() != n))
    return c.error("starts, ends, axes and steps differ in length");
  for (size_t i = 0; i < n; ++i) {
    int64_t axis = axes->empty() ? i : (*axes)[i], step = steps->empty() ? 1 : (*steps)[i];
    axis = axis < 0 ? axis + rank : axis;
    if (axis < 0 || axis >= rank || step == 0)
      return c.error(step == 0 ? "a step of 0" : "axis out of range");
    const int64_t size = x.dim(axis), high = step > 0 ? size : size - 1;
    auto at = [&](int64_t v, int64_t low) {
      return std::min(std::max(v < 0 ? std::max(v, -size - 1) + size : v, low), high);
    };
    const int64_t from = at((*starts)[i], 0);
    const int64_t to = step > 0 ? at((*ends)[i], 0) : isNoEnd((*ends)[i]) ? -1 : at((*ends)[i], -1);
    int64_t span = step > 0 ? to - from : from - to, stride = step > 0 ? step : -step;
    shape[axis] = span > 0 ? (span - 1) / stride + 1 : 0;
    offset += from * strides[axis];
    strides[axis] *= step;
  }
  Tensor &out = c.allocate(shape);
  if (out.count() > 0)
    copyStrided(x, offset, strides, out);
  return llvm::Error::success();
}

static AttrSpec list(llvm::StringRef name) {
  return {.name = name, .kind = AttrKind::Dims, .doc = "instead of the operand", .optional = true};
}

const OpInfo opSlice = {
    .code = OpCode::Slice,
    .mnemonic = "slice",
    .summary = "y = x[starts[i] : ends[i] : steps[i]] along each axes[i]",
    .operands = {{"x"},
                 {"starts", OperandSpec::Optional},
                 {"ends", OperandSpec::Optional},
                 {"axes", OperandSpec::Optional},
                 {"steps", OperandSpec::Optional}},
    .attrs = {list("starts"), list("ends"), list("axes"), list("steps")},
    .traits = DataMovement,
    .infer = inferSlice,
    .eval = evalSlice,
};

} // namespace gpt2c

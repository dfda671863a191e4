#include "ir/ops/Common.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

// Bounds that are symbolic are taken to lie within the axis; constant ones clamp, and count from
// the end when negative, as does an expression that can only be negative (`-seq`). Of an axis of
// one element an unknown part is taken to be that one: what broadcasts stays so.

constexpr int64_t farEnd = INT32_MAX; // exporters write "to the end" as any number from here on

/// A bound of an axis of size `dim` as a position in [0, dim]; none when that depends on the
/// symbols' values.
static std::optional<Dim> position(const Dim &bound, const Dim &dim) {
  if (auto v = bound.constant()) {
    if (*v >= farEnd)
      return dim;
    if (*v <= -farEnd)
      return Dim(0);
    Dim at = *v < 0 ? dim + bound : bound;
    if (isLess(at, 0) == true)
      return Dim(0);
    if (isLessEqual(dim, at) == true)
      return dim;
    if (dim.isConstant() || *v <= 1) // the first or a last element of an axis that is not empty
      return at;
    return std::nullopt;
  }
  if (isLessEqual(dim, bound) == true)
    return dim;
  return isLessEqual(bound, 0) == true ? dim + bound : bound;
}

static std::optional<Dim> extent(const Dim &start, const Dim &end, const Dim &step,
                                 const Dim &dim) {
  auto s = step.constant();
  if (!s)
    return std::nullopt;
  if (*s < 0) {
    auto first = start.constant(), last = end.constant(), size = dim.constant();
    if (first && last && size) {
      auto at = [&](int64_t v) {
        return std::clamp(v < 0 ? v + *size : v, int64_t(-1), *size - 1);
      };
      int64_t from = at(*first), to = *last <= -farEnd ? -1 : at(*last);
      return Dim(from > to ? (from - to - *s - 1) / -*s : 0);
    }
    bool whole =
        *s == -1 && last && *last <= -farEnd && first && (*first == -1 || *first >= farEnd);
    return whole ? std::optional(dim) : std::nullopt;
  }
  auto from = position(start, dim), to = position(end, dim);
  if (!from || !to)
    return std::nullopt;
  if (isLessEqual(*to, *from) == true)
    return Dim(0);
  Dim length = *to - *from;
  if (*s == 1)
    return length;
  if (auto n = length.constant())
    return Dim((*n + *s - 1) / *s);
  return length.exactDiv(step);
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
    auto d = extent((*starts)[i], (*ends)[i], step, c.shape(X)[*axis]);
    shape[*axis] = d ? *d : c.unknown(*axis);
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
    int64_t size = x.dim(axis), low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
    auto at = [&](int64_t v) {
      return std::clamp(v < 0 ? std::max(v, -size - 1) + size : v, low, std::max(low, high));
    };
    int64_t from = at((*starts)[i]), to = at((*ends)[i]);
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

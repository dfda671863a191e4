#include "frontend/Builders.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

namespace gpt2c::onnxops {

void concatOp(NodeLowering &n) {
  llvm::SmallVector<Value *, 4> values;
  for (unsigned i = 0; i < std::max(n.numInputs(), 1u); ++i)
    values.push_back(n.in(i));
  int64_t axis = n.requiredInt("axis");
  n.out(n.concat(values, axis));
}

void reshapeOp(NodeLowering &n) {
  bool allowZero = n.intAttr("allowzero", 0);
  n.out(n.emit(OpCode::Reshape, {n.in(0), n.in(1)}, {{"allowzero", allowZero}}));
}

/// [d0 * ... * d(axis-1), d(axis) * ...]
void flatten(NodeLowering &n) {
  Value *x = n.in(0);
  int64_t rank = x ? x->type.rank() : 0, axis = n.intAttr("axis", 1);
  axis = axis == rank ? rank : n.axis(axis, x);
  if (n.failed())
    return;
  llvm::ArrayRef<Dim> shape = x->type.shape;
  auto before = elementCount(shape.take_front(axis)).constant();
  auto after = elementCount(shape.drop_front(axis)).constant();
  if (before && after)
    return n.out(n.reshape(x, {*before, *after}));
  // One factor may stay open as -1, where the other cannot be zero.
  if (after && *after > 0)
    return n.out(n.reshape(x, {-1, *after}));
  if (before && *before > 0)
    return n.out(n.reshape(x, {*before, -1}));
  auto product = [&](int64_t start, int64_t end) {
    Value *part = n.emit(OpCode::Shape, {x}, {{"start", start}, {"end", end}});
    return n.reduce(OpCode::ReduceProd, part, {0}, /*keepDims=*/true);
  };
  Value *target = n.concat({product(0, axis), product(axis, rank)}, 0);
  n.out(n.emit(OpCode::Reshape, {x, target}, {{"allowzero", true}}));
}

void shapeOp(NodeLowering &n) {
  Value *x = n.in(0);
  if (!n.hasAttr("start") && !n.hasAttr("end"))
    return n.out(n.shapeOf(x));
  int64_t rank = x ? x->type.rank() : 0;
  auto clamp = [&](int64_t v) { return std::clamp<int64_t>(v < 0 ? v + rank : v, 0, rank); };
  int64_t start = clamp(n.intAttr("start", 0)), end = clamp(n.intAttr("end", rank));
  n.out(n.emit(OpCode::Shape, {x}, {{"start", start}, {"end", std::max(start, end)}}));
}

/// One slice per part.
static void emitParts(NodeLowering &n, int64_t axis, llvm::ArrayRef<Dim> sizes) {
  if (sizes.size() != n.numOutputs()) {
    n.invalid(llvm::Twine(sizes.size()) + " parts for " + llvm::Twine(n.numOutputs()) + " outputs");
    return;
  }
  Dim begin(0);
  for (unsigned i = 0; i < sizes.size(); ++i) {
    Dim end = begin + sizes[i];
    if (n.wants(i))
      n.out(i, n.slice(n.in(0), axis, begin, end));
    begin = end;
  }
}

static void splitInto(NodeLowering &n, std::optional<std::vector<int64_t>> sizes) {
  Value *x = n.in(0);
  int64_t axis = n.axis(n.intAttr("axis", 0), x);
  int64_t parts = n.intAttr("num_outputs", n.numOutputs());
  if (n.failed())
    return;
  const Dim &whole = x->type.shape[axis];
  if (sizes) {
    int64_t sum = 0;
    for (int64_t s : *sizes)
      if (s < 0 || llvm::AddOverflow(sum, s, sum)) {
        n.invalid(s < 0 ? "a part has a negative number of elements"
                        : "parts sum to more elements than an axis can have");
        return;
      }
    if (whole.constant() && *whole.constant() != sum) {
      n.invalid("parts that sum to " + llvm::Twine(sum) + " do not fit an axis of " + whole.str());
      return;
    }
    return emitParts(n, axis, toDims(*sizes));
  }
  if (parts < 1 || parts != n.numOutputs()) {
    n.invalid("num_outputs is " + llvm::Twine(parts) + ", but there are " +
              llvm::Twine(n.numOutputs()) + " outputs");
    return;
  }
  if (auto size = whole.exactDiv(Dim(parts)))
    return emitParts(n, axis, Dims(parts, *size));
  if (!whole.isConstant()) {
    n.unsupported("an axis of " + whole.str() + " cannot be split into " + llvm::Twine(parts) +
                  " parts without knowing its size");
    return;
  }
  // All parts have the size rounded up, but the last, which may be smaller.
  int64_t total = *whole.constant(), size = (total + parts - 1) / parts;
  Dims uneven;
  for (int64_t i = 0; i < parts; ++i)
    uneven.push_back(std::clamp<int64_t>(total - i * size, 0, size));
  emitParts(n, axis, uneven);
}

void splitByAttr(NodeLowering &n) { splitInto(n, n.intsAttr("split")); }

void split(NodeLowering &n) {
  std::optional<std::vector<int64_t>> sizes;
  if (n.has(1))
    sizes = n.requiredConstants(1);
  if (!n.failed())
    splitInto(n, std::move(sizes));
}

/// Without axes every axis of size 1 goes: the axes must be known now.
static void squeezeAxes(NodeLowering &n, std::optional<std::vector<int64_t>> axes) {
  Value *x = n.in(0);
  if (n.failed())
    return;
  if (!axes) {
    axes.emplace();
    for (unsigned i = 0; i < x->type.rank(); ++i) {
      auto size = x->type.shape[i].constant();
      if (!size) {
        n.unsupported("without axes on a tensor of type " + x->type.str() +
                      ", whose sizes are not all known");
        return;
      }
      if (*size == 1)
        axes->push_back(i);
    }
  }
  n.out(n.squeeze(x, *axes));
}

void squeezeByAttr(NodeLowering &n) { squeezeAxes(n, n.intsAttr("axes")); }

void squeezeOp(NodeLowering &n) {
  std::optional<std::vector<int64_t>> axes;
  if (n.has(1))
    axes = n.requiredConstants(1);
  squeezeAxes(n, std::move(axes));
}

void unsqueezeByAttr(NodeLowering &n) {
  auto axes = n.intsAttr("axes");
  if (!axes)
    n.invalid("attribute 'axes' is missing");
  else
    n.out(n.unsqueeze(n.in(0), *axes));
}

void unsqueezeOp(NodeLowering &n) {
  if (auto axes = n.requiredConstants(1))
    n.out(n.unsqueeze(n.in(0), *axes));
}

void transposeOp(NodeLowering &n) {
  Value *x = n.in(0);
  auto perm = n.intsAttr("perm");
  if (n.failed())
    return;
  if (!perm) {
    perm.emplace(x->type.rank());
    std::iota(perm->rbegin(), perm->rend(), 0);
  }
  n.out(n.transpose(x, *perm));
}

void trilu(NodeLowering &n) {
  bool upper = n.intAttr("upper", 1);
  llvm::SmallVector<Value *, 2> operands{n.in(0)};
  if (n.has(1))
    operands.push_back(n.in(1));
  n.out(n.emit(OpCode::Trilu, operands, {{"upper", upper}}));
}

/// Constant padding: a block of the value is joined to each end.
void pad(NodeLowering &n) {
  Value *x = n.in(0);
  std::string mode = n.stringAttr("mode", "constant");
  if (mode != "constant") {
    n.unsupported("mode '" + mode + "' is not supported");
    return;
  }
  auto pads = n.requiredConstants(1);
  if (n.failed())
    return;
  std::vector<int64_t> axes(x->type.rank());
  std::iota(axes.begin(), axes.end(), 0);
  if (n.has(3))
    axes = n.requiredConstants(3).value_or(std::vector<int64_t>());
  if (n.failed())
    return;
  if (pads->size() != 2 * axes.size()) {
    n.invalid(llvm::Twine(pads->size()) + " pads for " + llvm::Twine(axes.size()) + " axes");
    return;
  }
  if (llvm::any_of(*pads, [](int64_t p) { return p < 0; })) {
    n.unsupported("negative pads are not supported");
    return;
  }
  Value *fill = n.optional(2) ? n.optional(2) : n.scalarLike(0, x);
  for (size_t i = 0; i < axes.size() && !n.failed(); ++i) {
    int64_t axis = n.axis(axes[i], x);
    auto block = [&](int64_t size) {
      llvm::SmallVector<Value *, 4> dims;
      for (int64_t d = 0; d < x->type.rank(); ++d)
        dims.push_back(d == axis ? n.ints({size}) : n.sizeOf(x, d));
      return n.emit(OpCode::Expand, {fill, n.concat(dims, 0)});
    };
    llvm::SmallVector<Value *, 3> parts{x};
    if (int64_t before = (*pads)[i])
      parts.insert(parts.begin(), block(before));
    if (int64_t after = (*pads)[i + axes.size()])
      parts.push_back(block(after));
    if (parts.size() > 1)
      x = n.concat(parts, axis);
  }
  n.out(x);
}

} // namespace gpt2c::onnxops

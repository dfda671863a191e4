#include "ir/ops/Common.h"

#include "ir/Executor.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>
#include <functional>

namespace gpt2c {

Dim ioBytes(const Op &op) {
  Dim bytes;
  auto add = [&](const Value *v) {
    if (v)
      bytes = bytes + storedBytes(v->type);
  };
  for (const Value *v : op.operands())
    add(v);
  for (const Value *v : op.results())
    add(v);
  return bytes;
}

Cost elementwiseCost(const Op &op) { return {elementCount(op.result()->type.shape), ioBytes(op)}; }
Cost reductionCost(const Op &op) { return {elementCount(op.operand(0)->type.shape), ioBytes(op)}; }

/// a - b with constants kept far from overflow.
static Dim difference(const Dim &a, const Dim &b) {
  auto clamp = [](const Dim &d) {
    constexpr int64_t limit = int64_t(1) << 60;
    auto v = d.constant();
    return v ? Dim(std::clamp<int64_t>(*v, -limit, limit)) : d;
  };
  return clamp(a) - clamp(b);
}

std::optional<bool> isEqual(const Dim &a, const Dim &b, const DimBounds &bounds) {
  const DimRange d = difference(a, b).range(bounds);
  if (d.lo > 0 || d.hi < 0)
    return false;
  return d == DimRange{0, 0} ? std::optional(true) : std::nullopt;
}

std::optional<bool> isLess(const Dim &a, const Dim &b, const DimBounds &bounds) {
  if (a.isConstant() && b.isConstant())
    return *a.constant() < *b.constant();
  const DimRange d = difference(b, a).range(bounds);
  if (d.lo > 0)
    return true;
  return d.hi <= 0 ? std::optional(false) : std::nullopt;
}

/// Coefficients so small that no sum or product of two overflows.
static bool isTame(const Dim &d) {
  return llvm::all_of(d.terms(), [](const Dim::Term &t) {
    return t.coefficient > -(int64_t(1) << 30) && t.coefficient < (int64_t(1) << 30);
  });
}

template <typename F> static std::optional<Dim> combine(const Dim &a, const Dim &b, F f) {
  return isTame(a) && isTame(b) ? std::optional<Dim>(f(a, b)) : std::nullopt;
}

std::optional<Dim> addDims(const Dim &a, const Dim &b, const DimBounds &) {
  return combine(a, b, std::plus<Dim>());
}
std::optional<Dim> subDims(const Dim &a, const Dim &b, const DimBounds &) {
  return combine(a, b, std::minus<Dim>());
}
std::optional<Dim> mulDims(const Dim &a, const Dim &b, const DimBounds &) {
  return combine(a, b, std::multiplies<Dim>());
}

std::optional<Dim> divDims(const Dim &a, const Dim &b, const DimBounds &bounds) {
  const auto by = b.constant();
  if (by == 0 || !isTame(a) || !isTame(b))
    return std::nullopt;
  if (auto exact = a.exactDiv(b))
    return exact;
  if (!by)
    return std::nullopt;
  auto down = [&](const Dim &d) { // of what is above 0
    return Dim::floorDiv(Dim::positive(d, bounds), std::abs(*by), bounds);
  };
  const Dim towardZero = down(a) - down(Dim(0) - a);
  return *by > 0 ? towardZero : Dim(0) - towardZero;
}

std::optional<Dim> minDims(const Dim &a, const Dim &b, const DimBounds &bounds) {
  if (a.isConstant() && b.isConstant())
    return *a.constant() < *b.constant() ? a : b;
  return combine(a, b, [&](const Dim &x, const Dim &y) { return Dim::min(x, y, bounds); });
}

std::optional<Dim> maxDims(const Dim &a, const Dim &b, const DimBounds &bounds) {
  if (a.isConstant() && b.isConstant())
    return *a.constant() > *b.constant() ? a : b;
  return combine(a, b, [&](const Dim &x, const Dim &y) { return Dim::max(x, y, bounds); });
}

std::optional<llvm::SmallVector<int64_t, 4>> concreteShape(llvm::ArrayRef<Dim> shape) {
  llvm::SmallVector<int64_t, 4> out;
  for (const Dim &d : shape) {
    if (!d.isConstant())
      return std::nullopt;
    out.push_back(*d.constant());
  }
  return out;
}

llvm::Expected<int64_t> rankFromLength(const InferContext &c, unsigned i) {
  constexpr int64_t limit = 64;
  auto length = c.rank(i) == 1 ? c.shape(i)[0].constant() : std::nullopt;
  if (!length)
    return c.error("the rank of the result is not known");
  if (*length > limit)
    return c.error("a rank of " + llvm::Twine(*length) + " is more than " + llvm::Twine(limit));
  return *length;
}

llvm::Error inferFloatUnary(InferContext &c) {
  if (!isFloat(c.dtype(0)))
    return c.error("expects a floating-point operand");
  return inferSameAsOperand(c);
}

llvm::Error inferNumericUnary(InferContext &c) {
  if (c.dtype(0) == DType::Bool)
    return c.error("expects a numeric operand");
  return inferSameAsOperand(c);
}

/// The content of a broadcast of two integer operands.
static void broadcastContent(InferContext &c, DimFunction f) {
  if (!f || !c.content(0) || !c.content(1) || isFloat(c.dtype(0)))
    return;
  auto out = concreteShape(c.op().result()->type.shape), a = concreteShape(c.shape(0)),
       b = concreteShape(c.shape(1));
  if (!out || !a || !b)
    return;
  Dims values;
  bool known = true;
  forEachBroadcast(*out, {*a, *b}, [&](int64_t, llvm::ArrayRef<int64_t> i) {
    auto v = known ? f((*c.content(0))[i[0]], (*c.content(1))[i[1]], c.bounds()) : std::nullopt;
    known &= v.has_value();
    if (known)
      values.push_back(*v);
  });
  if (known)
    c.setContent(std::move(values));
}

static llvm::Error checkSameDType(InferContext &c) {
  if (c.dtype(0) != c.dtype(1))
    return c.error("operands differ in element type");
  return llvm::Error::success();
}

llvm::Error inferArithmetic(InferContext &c, DimFunction f) {
  if (llvm::Error e = checkSameDType(c))
    return e;
  if (c.dtype(0) == DType::Bool)
    return c.error("expects numeric operands");
  if (llvm::Error e = inferBroadcast(c))
    return e;
  broadcastContent(c, f);
  return llvm::Error::success();
}

llvm::Error inferCompare(InferContext &c, DimFunction f) {
  if (llvm::Error e = checkSameDType(c))
    return e;
  if (llvm::Error e = inferBroadcastToBool(c))
    return e;
  broadcastContent(c, f);
  return llvm::Error::success();
}

llvm::Error inferLogic(InferContext &c, DimFunction f) {
  if (c.dtype(0) != DType::Bool || c.dtype(1) != DType::Bool)
    return c.error("expects bool operands");
  return inferCompare(c, f);
}

llvm::Error inferReduction(InferContext &c, DimFunction f) {
  if (c.dtype(0) == DType::Bool)
    return c.error("expects a numeric operand");
  unsigned rank = c.rank(0);
  llvm::SmallVector<bool, 6> reduced(rank, false);
  auto axes = c.ints("axes");
  if (!axes)
    return axes.takeError();
  for (int64_t a : *axes) {
    auto axis = c.axis(a, rank);
    if (!axis)
      return axis.takeError();
    reduced[*axis] = true;
  }
  if (axes->empty())
    reduced.assign(rank, true);
  Shape shape;
  for (unsigned i = 0; i < rank; ++i) {
    if (!reduced[i])
      shape.push_back(c.shape(0)[i]);
    else if (c.op().boolAttr("keepdims"))
      shape.push_back(1);
  }
  c.setResult(c.dtype(0), std::move(shape));
  const Dims *in = c.content(0);
  if (!f || !in || in->empty() || !llvm::all_of(reduced, [](bool b) { return b; }))
    return llvm::Error::success();
  std::optional<Dim> acc = in->front();
  for (const Dim &d : llvm::ArrayRef(*in).drop_front())
    acc = acc ? f(*acc, d, c.bounds()) : std::nullopt;
  if (acc)
    c.setContent({*acc});
  return llvm::Error::success();
}

void forwardContent(InferContext &c, unsigned dataOperands) {
  constexpr int64_t limit = 127; // positions fit every element type
  int64_t results = 1;           // contents are for few elements: a large result is not computed
  for (const Dim &d : c.op().result()->type.shape) {
    if (!d.isConstant() || *d.constant() < 0 || *d.constant() > limit ||
        (results *= *d.constant()) > limit)
      return;
  }
  Dims source;
  std::vector<Tensor> inputs;
  for (unsigned i = 0; i < c.numOperands(); ++i) {
    if (!c.has(i)) {
      inputs.emplace_back();
      continue;
    }
    auto shape = concreteShape(c.shape(i));
    const Dims *content = c.content(i);
    auto constants = c.constants(i);
    if (!shape || !content || (i >= dataOperands && !constants))
      return;
    Tensor t(DType::I64, *shape);
    if (t.count() != static_cast<int64_t>(content->size()))
      return;
    for (int64_t j = 0; j < t.count(); ++j)
      t.data<int64_t>()[j] = i < dataOperands ? int64_t(source.size()) + j : (*constants)[j];
    inputs.push_back(t.cast(c.dtype(i) == DType::Bool ? DType::U8 : c.dtype(i)));
    if (i < dataOperands)
      source.insert(source.end(), content->begin(), content->end());
  }
  if (static_cast<int64_t>(source.size()) > limit)
    return;
  auto out = evaluateOp(c.op(), inputs, {});
  if (!out) {
    llvm::consumeError(out.takeError());
    return;
  }
  Dims content;
  for (int64_t i = 0, n = out->front().count(); i < n; ++i)
    content.push_back(source[out->front().asInt(i)]);
  c.setContent(std::move(content));
}

bool listGiven(const Op &op, llvm::StringRef attr, unsigned operand) {
  return op.hasAttr(attr) || op.operand(operand);
}

std::optional<Dims> knownList(const InferContext &c, llvm::StringRef attr, unsigned operand) {
  if (c.op().hasAttr(attr))
    return c.op().dimsAttr(attr);
  const Dims *content = c.content(operand);
  return content ? std::optional(*content) : std::nullopt;
}

llvm::Expected<std::vector<int64_t>> listValue(const EvalContext &c, llvm::StringRef attr,
                                               unsigned operand) {
  if (c.op().hasAttr(attr))
    return c.dims(attr);
  return c.has(operand) ? c.ints(operand) : std::vector<int64_t>();
}

llvm::SmallVector<int64_t, 4> rowMajorStrides(llvm::ArrayRef<int64_t> shape) {
  llvm::SmallVector<int64_t, 4> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * shape[i];
  return strides;
}

int64_t product(llvm::ArrayRef<int64_t> dims) {
  int64_t n = 1;
  for (int64_t d : dims)
    n *= d;
  return n;
}

void copyStrided(const Tensor &in, int64_t offset, llvm::ArrayRef<int64_t> strides, Tensor &out) {
  int64_t total = out.count();
  if (total == 0)
    return;
  withWord(byteSize(out.dtype()), [&](auto tag) {
    using Word = decltype(tag);
    const Word *src = in.data<Word>() + offset;
    Word *dst = out.data<Word>();
    unsigned rank = out.rank();
    int64_t inner = rank ? out.dim(-1) : 1, step = rank ? strides.back() : 1;
    llvm::SmallVector<int64_t, 6> counter(rank, 0);
    for (int64_t done = 0; done < total; done += inner, dst += inner) {
      if (step == 1)
        std::memcpy(dst, src, inner * sizeof(Word));
      else
        for (int64_t i = 0; i < inner; ++i)
          dst[i] = src[i * step];
      for (int axis = int(rank) - 2; axis >= 0; --axis) {
        src += strides[axis];
        if (++counter[axis] < out.dim(axis))
          break;
        src -= strides[axis] * out.dim(axis);
        counter[axis] = 0;
      }
    }
  });
}

llvm::Expected<llvm::SmallVector<int64_t, 4>> reducedAxes(const EvalContext &c, unsigned rank) {
  llvm::SmallVector<int64_t, 4> axes;
  for (int64_t a : c.op().intsAttr("axes")) {
    if (a < -int64_t(rank) || a >= int64_t(rank))
      return c.error("axis " + llvm::Twine(a) + " is out of range");
    axes.push_back(a < 0 ? a + rank : a);
  }
  if (axes.empty())
    for (unsigned i = 0; i < rank; ++i)
      axes.push_back(i);
  llvm::sort(axes);
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return axes;
}

} // namespace gpt2c

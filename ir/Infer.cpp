#include "ir/Infer.h"

#include "ir/Budget.h"
#include "ir/Error.h"
#include "ir/Names.h"

#include "llvm/ADT/STLExtras.h"

#include <atomic>
#include <unordered_map>

namespace gpt2c {

thread_local std::vector<std::pair<Dim, Dim>> *inferredEqualities = nullptr;

const Dims *InferContext::content(unsigned operand) const {
  const Value *v = op_.operand(operand);
  return v && v->content ? &*v->content : nullptr;
}

llvm::Expected<std::vector<int64_t>> InferContext::ints(llvm::StringRef attr) const {
  std::vector<int64_t> out;
  for (const Dim &d : op_.dimsAttr(attr)) {
    if (!d.isConstant())
      return error("attribute '" + attr + "' must be constant, not " + d.str());
    out.push_back(*d.constant());
  }
  return out;
}

std::optional<std::vector<int64_t>> InferContext::constants(unsigned operand) const {
  const Dims *dims = content(operand);
  if (!dims)
    return std::nullopt;
  std::vector<int64_t> out;
  for (const Dim &d : *dims) {
    if (!d.isConstant())
      return std::nullopt;
    out.push_back(*d.constant());
  }
  return out;
}

const DimBounds &InferContext::bounds() const {
  if (!bounds_)
    bounds_ = op_.function()->bounds();
  return *bounds_;
}

namespace {

/// The simplest forms of the sizes that inference met: of the few that a graph has it meets each in
/// nearly every op.
class SimplestForms {
public:
  Dim of(const Dim &d, const DimBounds &bounds) {
    constexpr size_t mostKept = 4096;
    Known now{d, {}, {bounds.limits().begin(), bounds.limits().end()}, {}};
    auto add = [&](llvm::StringRef symbol) { now.ranges.push_back(bounds.of(symbol)); };
    d.forEachSymbol(add);
    for (const DimBounds::Limit &limit : now.limits)
      limit.sum.forEachSymbol(add);
    if (kept_.size() > mostKept)
      kept_.clear();
    Known &known = kept_[d.hash()];
    if (known.size != now.size || known.ranges != now.ranges || known.limits != now.limits) {
      now.simplest = d.within(bounds);
      known = std::move(now);
    }
    return known.simplest;
  }

private:
  /// A size, and all of the bounds that its form may hang on.
  struct Known {
    Dim size;
    std::vector<DimRange> ranges;
    std::vector<DimBounds::Limit> limits;
    Dim simplest;
  };
  std::unordered_map<size_t, Known> kept_;
};

} // namespace

std::optional<Dim> InferContext::simplified(const Dim &d) const {
  constexpr size_t limit = 150; // what plans calculate with each call
  static thread_local SimplestForms forms;
  if (d.isPolynomial())
    return d;
  Dim simple = forms.of(d, bounds());
  return simple.complexity() <= limit ? std::optional(std::move(simple)) : std::nullopt;
}

void InferContext::setResult(unsigned i, DType dtype, Shape shape) {
  for (auto [axis, d] : llvm::enumerate(shape)) {
    auto simple = simplified(d);
    d = simple ? std::move(*simple) : unknown(axis, i);
  }
  op_.result(i)->type = Type{dtype, std::move(shape)};
}

void InferContext::setContent(Dims content, unsigned i) {
  constexpr size_t limit = 256;
  if (content.size() > limit)
    return;
  for (Dim &d : content) {
    auto simple = simplified(d);
    if (!simple)
      return;
    d = std::move(*simple);
  }
  op_.result(i)->content = std::move(content);
}

Dim InferContext::unknown(unsigned axis, unsigned result) const {
  // A symbol given to this axis before (by the text form or an earlier inference) stays.
  const Type &old = op_.result(result)->type;
  if (axis < old.rank() && old.shape[axis].asSymbol())
    return old.shape[axis];
  static std::atomic<unsigned> counter = 0;
  std::string name;
  do // a model, or a text printed earlier, may have symbols that are spelled so
    name = "u" + std::to_string(counter++);
  while (isInterned(name));
  return Dim::symbol(name);
}

llvm::Error InferContext::error(const llvm::Twine &message) const {
  std::string types;
  llvm::raw_string_ostream os(types);
  llvm::interleaveComma(op_.operands(), os, [&](Value *v) {
    if (v)
      os << v->type;
    else
      os << "none";
  });
  return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                 op_.describe() + ": " + message + "; operands are " + types);
}

llvm::Expected<unsigned> InferContext::axis(int64_t axis, unsigned rank) const {
  int64_t a = axis < 0 ? axis + rank : axis;
  if (a < 0 || a >= rank)
    return error("axis " + llvm::Twine(axis) + " is out of range for rank " + llvm::Twine(rank));
  return a;
}

llvm::Expected<Dim> InferContext::unify(const Dim &a, const Dim &b) const {
  if (a == b)
    return a;
  const DimRange difference = (a - b).range(bounds());
  if (difference.lo > 0 || difference.hi < 0)
    return error("dimensions " + a.str() + " and " + b.str() + " differ");
  return taken(a, b);
}

Dim InferContext::taken(const Dim &a, const Dim &b) const {
  if (inferredEqualities)
    inferredEqualities->push_back({a, b});
  if (a.isConstant() || b.isConstant())
    return a.isConstant() ? a : b;
  if (a.isPolynomial() != b.isPolynomial())
    return a.isPolynomial() ? a : b;
  return a.asSymbol() ? b : a;
}

/// The size of a broadcast of a and b wherever they are equal or one is 1.
static Dim broadcastSize(const Dim &a, const Dim &b, const Dim &taken, const DimBounds &bounds) {
  if (a.isPolynomial() && b.isPolynomial())
    return taken;
  auto size = [](llvm::ArrayRef<int64_t> v) {
    return v[0] == 1 ? v[1] : v[1] == 1 ? v[0] : std::max(v[0], v[1]);
  };
  if (auto known = Dim::pointwise({a, b}, size, bounds))
    return *known;
  const DimRange difference = (a - b).range(bounds);
  return difference.lo >= 0 ? a : difference.hi <= 0 ? b : taken;
}

llvm::Expected<Shape> InferContext::broadcast(llvm::ArrayRef<Dim> a, llvm::ArrayRef<Dim> b) const {
  size_t rank = std::max(a.size(), b.size());
  Shape out(rank);
  const Dim one(1);
  for (size_t i = 0; i < rank; ++i) {
    Dim x = i + a.size() < rank ? one : a[i + a.size() - rank];
    Dim y = i + b.size() < rank ? one : b[i + b.size() - rank];
    if (x == one || y == one) {
      out[i] = x == one ? y : x;
      continue;
    }
    if (x.isConstant() && y.isConstant() && x != y)
      return error("dimensions " + x.str() + " and " + y.str() + " differ");
    out[i] = x == y ? x : broadcastSize(x, y, taken(x, y), bounds());
  }
  return out;
}

llvm::Error checkSize(const Type &type, const llvm::Twine &what) {
  llvm::SmallVector<int64_t, 4> known;
  for (const Dim &d : type.shape)
    if (auto n = d.constant())
      known.push_back(*n);
  if (tensorBytes(type.dtype, known))
    return llvm::Error::success();
  return makeError(ExitCode::InvalidModel,
                   what + ": " + type.str() + " has more bytes than can be addressed");
}

llvm::Error inferOp(Op &op) {
  const OpInfo &info = op.info();
  unsigned required = 0;
  bool variadic = false;
  for (const OperandSpec &s : info.operands) {
    required += s.kind == OperandSpec::Required;
    variadic |= s.kind == OperandSpec::Variadic;
  }
  InferContext c(op);
  if (op.numOperands() < required || (!variadic && op.numOperands() > info.operands.size()))
    return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                   op.describe() + ": wrong number of operands (" +
                                       llvm::Twine(op.numOperands()) + ")");
  for (unsigned i = 0; i < required; ++i)
    if (!op.operand(i))
      return llvm::createStringError(llvm::inconvertibleErrorCode(), op.describe() + ": operand '" +
                                                                         info.operands[i].name +
                                                                         "' is missing");
  for (Value *r : op.results())
    r->content.reset();
  // Elements that share a byte are no lanes, rows or ports.
  const bool reads = op.is(OpCode::Dequantize) || op.is(OpCode::AffineDequantize) ||
                     op.is(OpCode::QuantizedLinear);
  for (const Value *v : op.operands())
    if (v && !reads && packedElements(v->type.dtype) > 1)
      return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                     op.describe() + ": elements of " + dtypeName(v->type.dtype) +
                                         " are weights that are dequantised or multiplied");
  if (!info.infer)
    return llvm::Error::success();
  if (llvm::Error e = info.infer(c))
    return e;
  for (const Value *r : op.results())
    if (llvm::Error e = checkSize(r->type, op.describe()))
      return e;
  return llvm::Error::success();
}

llvm::Error inferSameAsOperand(InferContext &c) {
  c.setResult(c.dtype(0), Shape(c.shape(0)));
  return llvm::Error::success();
}

static llvm::Expected<Shape> broadcastOperands(InferContext &c) {
  Shape shape;
  for (unsigned i = 0; i < c.numOperands(); ++i) {
    if (!c.has(i))
      continue;
    auto s = c.broadcast(shape, c.shape(i));
    if (!s)
      return s.takeError();
    shape = std::move(*s);
  }
  return shape;
}

llvm::Error inferBroadcast(InferContext &c) {
  auto shape = broadcastOperands(c);
  if (!shape)
    return shape.takeError();
  c.setResult(c.dtype(0), std::move(*shape));
  return llvm::Error::success();
}

llvm::Error inferBroadcastToBool(InferContext &c) {
  auto shape = broadcastOperands(c);
  if (!shape)
    return shape.takeError();
  c.setResult(DType::Bool, std::move(*shape));
  return llvm::Error::success();
}

} // namespace gpt2c

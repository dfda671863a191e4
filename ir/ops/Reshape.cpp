#include "ir/ops/Common.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

using ops::Reshape::X;

/// Whether all dimensions but `inferred` are the same or symbols: [sequences, total] as [batch,
/// -1].
static bool isSameButForNames(llvm::ArrayRef<Dim> from, llvm::ArrayRef<Dim> to, unsigned inferred) {
  if (from.size() != to.size())
    return false;
  for (unsigned i = 0; i < from.size(); ++i)
    if (i != inferred && from[i] != to[i] && !(from[i].asSymbol() && to[i].asSymbol()))
      return false;
  return true;
}

/// The shape asked for; none when that is not known, or is -1 for some lengths and a size for
/// others.
static std::optional<Dims> targetOf(const InferContext &c) {
  auto target = knownList(c, "shape", ops::Reshape::Shape);
  if (!target || c.op().hasAttr("shape")) // a symbol of an attribute is a size
    return target;
  for (auto [i, d] : llvm::enumerate(*target)) {
    if (d.isConstant())
      continue;
    const DimRange range = d.range(c.bounds());
    if (range.lo < 0)
      return std::nullopt;
    if (range.lo > 0 || i >= c.rank(X) || c.op().boolAttr("allowzero"))
      continue;
    auto copied = [](llvm::ArrayRef<int64_t> v) { return v[0] == 0 ? v[1] : v[0]; };
    if (auto either = Dim::pointwise({d, c.shape(X)[i]}, copied, c.bounds()))
      d = *either;
    else if (!d.isPolynomial())
      return std::nullopt;
  }
  return target;
}

static llvm::Error inferReshape(InferContext &c) {
  if (!listGiven(c.op(), "shape", ops::Reshape::Shape))
    return c.error("needs the operand or the attribute 'shape'");
  Dim count = elementCount(c.shape(X));
  bool allowZero = c.op().boolAttr("allowzero");
  auto target = targetOf(c);
  Shape shape;
  if (!target) {
    auto length = rankFromLength(c, ops::Reshape::Shape);
    if (!length)
      return length.takeError();
    for (int64_t i = 0; i < *length; ++i)
      shape.push_back(c.unknown(i));
    c.setResult(c.dtype(X), std::move(shape));
    return llvm::Error::success();
  }
  std::optional<unsigned> inferred;
  Dim known(1);
  for (unsigned i = 0; i < target->size(); ++i) {
    Dim d = (*target)[i];
    if (d == Dim(0) && !allowZero) {
      if (i >= c.rank(X))
        return c.error("0 at position " + llvm::Twine(i) + " copies no dimension");
      d = c.shape(X)[i];
    }
    if (d == Dim(-1)) {
      if (inferred)
        return c.error("more than one -1 in the shape");
      inferred = i;
    } else {
      if (auto v = d.constant(); v && *v < 0)
        return c.error("negative dimension " + d.str());
      known = known * d;
    }
    shape.push_back(d);
  }
  if (inferred) {
    auto d = known == Dim(0) ? std::nullopt : count.exactDiv(known);
    if (auto by = known.constant(); !d && by && *by > 0 && !count.isConstant())
      d = Dim::floorDiv(count, *by, c.bounds()); // exact in a call that can run
    if (!d && known != Dim(0) && count.isConstant() && known.isConstant())
      return c.error(count.str() + " elements do not divide by " + known.str());
    if (!d && isSameButForNames(c.shape(X), shape, *inferred)) {
      d = c.shape(X)[*inferred];
      for (unsigned i = 0; i < shape.size() && inferredEqualities; ++i)
        if (i != *inferred && c.shape(X)[i] != shape[i])
          inferredEqualities->push_back({c.shape(X)[i], shape[i]});
    }
    shape[*inferred] = d ? *d : c.unknown(*inferred);
  } else if (count.isConstant() && known.isConstant() && !(count == known)) {
    return c.error(count.str() + " elements do not fit " + Type{c.dtype(X), shape}.str());
  } else if (!(count == known) && inferredEqualities) {
    inferredEqualities->push_back({count, known});
  }
  c.setResult(c.dtype(X), std::move(shape));
  if (c.content(X))
    c.setContent(*c.content(X));
  return llvm::Error::success();
}

static llvm::Error evalReshape(EvalContext &c) {
  auto target = listValue(c, "shape", ops::Reshape::Shape);
  if (!target)
    return target.takeError();
  const Tensor &x = c.input(X);
  // A symbol that happens to be 0 is an empty dimension; a 0 that is written out copies one.
  auto copies = [&](size_t i) {
    const Attr *shape = c.op().attr("shape");
    return !c.op().boolAttr("allowzero") && (!shape || std::get<Dims>(*shape)[i] == Dim(0));
  };
  int64_t known = 1, inferred = -1;
  for (size_t i = 0; i < target->size(); ++i) {
    int64_t &d = (*target)[i];
    if (d == 0 && copies(i)) {
      if (i >= x.rank())
        return c.error("0 in the shape copies no dimension");
      d = x.dim(i);
    }
    if (d == -1)
      inferred = i;
    else
      known *= d;
  }
  if (inferred >= 0 && known != 0)
    (*target)[inferred] = x.count() / known;
  if (llvm::any_of(*target, [](int64_t d) { return d < 0; }) || product(*target) != x.count())
    return c.error("the number of elements changes");
  c.output() = x.reshaped(*target);
  return llvm::Error::success();
}

const OpInfo opReshape = {
    .code = OpCode::Reshape,
    .mnemonic = "reshape",
    .summary = "y = the elements of x, row-major, under another shape; 0 copies a dimension, -1 is "
               "inferred",
    .operands = {{"x"}, {"shape", OperandSpec::Optional}},
    .attrs = {{.name = "shape",
               .kind = AttrKind::Dims,
               .doc = "instead of the operand",
               .optional = true},
              {"allowzero", AttrKind::Bool, Attr(false), "0 means an empty dimension"}},
    .traits = DataMovement,
    .infer = inferReshape,
    .eval = evalReshape,
};

} // namespace gpt2c

// resolve-shapes: integer values that inference knows symbolically stop being computed. Reshape,
// expand, slice and the like take their shapes as attributes (`reshape(x) {shape = [batch, seq, 12,
// 64]}`), everything else that is known becomes dim_values or a constant, and the sub-graphs of
// shape, gather and concat behind them die. What a size depends on that no argument tells (the
// elements of non_zero) stays computed.
//
// Dimensions that must be equal in a call that can run (an input's `total` broadcast against `past
// + seq`) are unified first. Where they are equal up to a length alone (`seq` and `min(seq, 1024)`
// rows of a stored mask), and where positions are looked up in a table, that is a limit of the
// function, and minima are decided by it.
#include "ir/Builder.h"
#include "ir/Error.h"
#include "ir/Infer.h"
#include "ir/Piecewise.h"
#include "passes/Pass.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace gpt2c {

/// The symbols that the arguments' shapes tell.
class KnownSymbols {
public:
  explicit KnownSymbols(const Function &f) {
    for (unsigned i = 0; i < f.numArguments(); ++i)
      for (const Dim &d : f.argument(i)->type.shape)
        d.forEachSymbol([&](llvm::StringRef s) { names_.insert(s); });
  }
  bool tell(llvm::ArrayRef<Dim> dims) const {
    bool known = true;
    for (const Dim &d : dims)
      d.forEachSymbol([&](llvm::StringRef s) { known &= names_.contains(s); });
    return known;
  }

private:
  llvm::StringSet<> names_;
};

/// A symbol and what it is, where a = b: one side, or of two sums (past0 + seq, past1 + seq) what
/// they differ in.
static std::optional<std::pair<llvm::StringRef, Dim>> solved(const Dim &a, const Dim &b) {
  for (auto [symbol, other] : {std::pair(&a, &b), std::pair(&b, &a)})
    if (auto name = symbol->asSymbol(); name && !other->uses(*name))
      return std::pair(*name, *other);
  const Dim difference = a - b; // s - t
  auto terms = difference.terms();
  if (terms.size() == 2 && difference.isPolynomial() && terms[0].factors.size() == 1 &&
      terms[1].factors.size() == 1 && std::abs(terms[0].coefficient) == 1 &&
      terms[0].coefficient == -terms[1].coefficient)
    return std::pair(terms[0].factors[0]->text, Dim::of(terms[1].factors[0]));
  return std::nullopt;
}

using Equalities = std::vector<std::pair<Dim, Dim>>;

/// The argument whose rows and columns a and b count, as token ids [batch, seq] have: numbers that
/// a caller chooses apart from each other.
static const Value *rowsAndColumns(const Function &f, const Dim &a, const Dim &b) {
  for (unsigned i = 0; i < f.numArguments(); ++i) {
    const Type &t = f.argument(i)->type;
    if (t.rank() == 2 && !isFloat(t.dtype) && a.asSymbol() && b.asSymbol() && a != b &&
        llvm::is_contained(t.shape, a) && llvm::is_contained(t.shape, b))
      return f.argument(i);
  }
  return nullptr;
}

/// Nothing says which of them is 1 where both are not equal, so no size of a result is right.
static llvm::Error refuseMixed(Function &f, const Dim &a, const Dim &b, const Value &argument) {
  std::string where;
  for (auto &op : f.ops()) {
    Equalities here;
    inferredEqualities = &here;
    llvm::Error e = inferOp(*op);
    inferredEqualities = nullptr;
    llvm::consumeError(std::move(e)); // as it was inferred before
    if (llvm::is_contained(here, std::pair(a, b))) {
      where = op->describe() + ": ";
      break;
    }
  }
  return makeError(ExitCode::Unsupported,
                   where + "'" + a.str() + "' meets '" + b.str() + "', the two sizes of '" +
                       argument.name +
                       "', in one dimension: whether they are equal or one of them " +
                       "is 1 is not known before a call; declare one of them as a number");
}

/// Replaces a symbol that one of the equalities tells, by a polynomial where there is one.
static bool substituteOne(Function &f, const Equalities &equalities) {
  const KnownSymbols known(f);
  for (bool polynomial : {true, false})
    for (auto &[a, b] : equalities) {
      auto solution = known.tell({a, b}) ? solved(a, b) : std::nullopt;
      if (!solution || solution->second.isPolynomial() != polynomial)
        continue;
      f.substitute(solution->first, solution->second);
      return true;
    }
  return false;
}

/// The limit x <= k where a and b, which broadcast, differ by a multiple of max(x - k, 0) alone.
static std::optional<DimBounds::Limit> limitOf(const Dim &a, const Dim &b) {
  auto f = Piecewise::from(a), g = Piecewise::from(b);
  if (!f || !g || (f->x != g->x && f->x != Dim(0) && g->x != Dim(0)))
    return std::nullopt;
  auto difference = Piecewise::from(f->minus(*g).dim());
  if (!difference || difference->offset != 0 || difference->slope != 0 ||
      difference->bends.size() != 1)
    return std::nullopt;
  const int64_t most = difference->bends[0].at;
  const DimRange beyond{most + 1, DimRange().hi};
  if (f->range(beyond).lo < 2 || g->range(beyond).lo < 2) // one of them may be 1 and repeat
    return std::nullopt;
  return DimBounds::Limit{difference->x, most};
}

/// x of max(x + c, 0), and -c.
static std::optional<DimBounds::Limit> excessOf(const Dim::Term &term) {
  if (term.factors.size() != 1 || term.factors[0]->kind != Dim::Factor::Kind::Positive)
    return std::nullopt;
  const Dim &of = *term.factors[0]->of;
  int64_t offset = 0;
  for (const Dim::Term &t : of.terms())
    if (t.factors.empty())
      offset = t.coefficient;
  return DimBounds::Limit{of - Dim(offset), -offset};
}

/// The limit y <= k where a and b differ by max(y - k, 0) - max(x - k, 0) and x <= y, as of rows
/// [x, y) of a table of k rows. Longer texts, of which one row may be left, are refused.
static std::optional<DimBounds::Limit> limitOfRows(const Dim &a, const Dim &b) {
  const Dim difference = a - b;
  if (difference.terms().size() != 2)
    return std::nullopt;
  const Dim::Term &s = difference.terms()[0], &t = difference.terms()[1];
  auto first = excessOf(s), second = excessOf(t);
  if (!first || !second || first->most != second->most || std::abs(s.coefficient) != 1 ||
      s.coefficient != -t.coefficient)
    return std::nullopt;
  for (const auto &[longer, shorter] : {std::pair(*first, *second), std::pair(*second, *first)})
    if (longer.sum != shorter.sum && (longer.sum - shorter.sum).range({}).lo >= 0)
      return longer;
  return std::nullopt;
}

/// Infers all types again; every symbol found equal to an expression is replaced by it, and every
/// limit found is kept, until nothing changes.
static llvm::Error unifyDims(Function &f) {
  for (int round = 0; round < 32; ++round) {
    Equalities equalities;
    inferredEqualities = &equalities;
    llvm::Error e = f.inferTypes();
    inferredEqualities = nullptr;
    if (e)
      return e;
    for (auto &[a, b] : equalities)
      if (const Value *argument = rowsAndColumns(f, a, b))
        return refuseMixed(f, a, b, *argument);
    bool changed = substituteOne(f, equalities);
    if (!changed)
      for (auto &[a, b] : equalities)
        if (auto rows = limitOfRows(a, b), limit = rows ? rows : limitOf(a, b); limit)
          changed |= f.limits.atMost(limit->sum, limit->most);
    if (!changed)
      return llvm::Error::success();
  }
  return llvm::Error::success();
}

/// The number that an operand or an attribute instead of it holds, if it is known and one.
static std::optional<Dim> numberOf(const Op &op, unsigned operand, llvm::StringRef name) {
  const Value *v = op.operand(operand);
  const Dims *list = op.hasAttr(name)  ? &op.dimsAttr(name)
                     : v && v->content ? &*v->content
                                       : nullptr;
  return list && list->size() == 1 ? std::optional(list->front()) : std::nullopt;
}

/// Lengths of texts whose positions from, from + 1, ... are looked up in a table: its rows limit
/// them.
static bool limitByTables(Function &f) {
  bool changed = false;
  for (auto &op : f.ops()) {
    if (!op->is(OpCode::Gather) || op->intAttr("axis") != 0 || !op->operand(0)->def() ||
        !op->operand(0)->def()->is(OpCode::Constant))
      continue;
    const Op *index = op->operand(ops::Gather::Indices)->def();
    while (index && (index->is(OpCode::Reshape) || index->is(OpCode::Unsqueeze) ||
                     index->is(OpCode::Squeeze) || index->is(OpCode::Expand)))
      index = index->operand(0)->def();
    if (!index || !index->is(OpCode::Range) ||
        numberOf(*index, ops::Range::Delta, "delta") != Dim(1))
      continue;
    auto from = numberOf(*index, ops::Range::Start, "start");
    const Dim &length = index->result()->type.shape[0];
    const DimBounds bounds = f.bounds();
    if (from && from->range(bounds).lo >= 0 && length.range(bounds).lo >= 1)
      changed |= f.limits.atMost(*from + length, *op->operand(0)->type.shape[0].constant());
  }
  return changed;
}

/// Operand `i` of `op` becomes the attribute `name`, when its content is known.
static bool operandToAttr(Op &op, unsigned i, llvm::StringRef name, const KnownSymbols &known) {
  Value *v = op.operand(i);
  if (!v || !v->content || op.hasAttr(name) || !known.tell(*v->content))
    return false;
  op.setAttr(name, Dims(*v->content));
  op.setOperand(i, nullptr);
  return true;
}

static bool resolveOperands(Op &op, const KnownSymbols &known) {
  switch (op.code()) {
  case OpCode::Reshape:
  case OpCode::Expand: {
    // The result's shape says more than the operand: no zeros, no -1, broadcasting done.
    const Value *target = op.operand(ops::Reshape::Shape);
    const Shape &shape = op.result()->type.shape;
    if (!target || !target->content || !known.tell(*target->content) || !known.tell(shape))
      return false;
    op.setAttr("shape", Dims(shape.begin(), shape.end()));
    if (op.is(OpCode::Reshape) && llvm::is_contained(shape, Dim(0)))
      op.setAttr("allowzero", true);
    op.setOperand(ops::Reshape::Shape, nullptr);
    return true;
  }
  case OpCode::ConstantOfShape:
    return operandToAttr(op, ops::ConstantOfShape::Shape, "shape", known);
  case OpCode::Tile:
    return operandToAttr(op, ops::Tile::Repeats, "repeats", known);
  case OpCode::Slice: {
    for (unsigned i = ops::Slice::Starts; i < op.numOperands(); ++i)
      if (op.operand(i) && (!op.operand(i)->content || !known.tell(*op.operand(i)->content)))
        return false;
    bool changed = false;
    changed |= operandToAttr(op, ops::Slice::Starts, "starts", known);
    changed |= operandToAttr(op, ops::Slice::Ends, "ends", known);
    changed |= operandToAttr(op, ops::Slice::Axes, "axes", known);
    changed |= operandToAttr(op, ops::Slice::Steps, "steps", known);
    return changed;
  }
  case OpCode::Range: {
    for (unsigned i : {ops::Range::Start, ops::Range::Limit, ops::Range::Delta})
      if (op.operand(i) && (!op.operand(i)->content || !known.tell(*op.operand(i)->content)))
        return false;
    const DType dtype = op.result()->type.dtype;
    bool changed = operandToAttr(op, ops::Range::Start, "start", known);
    changed |= operandToAttr(op, ops::Range::Limit, "limit", known);
    changed |= operandToAttr(op, ops::Range::Delta, "delta", known);
    if (changed && dtype != DType::I64) // which the operands told
      op.setAttr("dtype", dtype);
    return changed;
  }
  default:
    return false;
  }
}

/// Replaces a value of known content that is still computed.
static llvm::Error materialise(Function &f, Op &op, const KnownSymbols &symbols) {
  Value *v = op.result();
  if (!v->content || !symbols.tell(*v->content) || v->uses().empty() || v->type.rank() > 1 ||
      op.is(OpCode::Constant) || op.is(OpCode::DimValues))
    return llvm::Error::success();
  Builder b(f, &op);
  b.setLocations(op.locations);
  Value *known = nullptr;
  if (llvm::all_of(*v->content, [](const Dim &d) { return d.isConstant(); })) {
    std::vector<int64_t> values, shape;
    for (const Dim &d : *v->content)
      values.push_back(*d.constant());
    if (v->type.rank() == 1)
      shape.push_back(values.size());
    known = b.constant(Tensor::of<int64_t>(values, shape).cast(v->type.dtype));
  } else {
    auto dims =
        b.value(OpCode::DimValues, {}, {{"values", *v->content}, {"scalar", v->type.rank() == 0}});
    if (!dims)
      return dims.takeError();
    known = *dims;
    if (v->type.dtype != DType::I64) {
      auto cast = b.value(OpCode::Cast, {known}, {{"to", v->type.dtype}});
      if (!cast)
        return cast.takeError();
      known = *cast;
    }
  }
  v->replaceAllUsesWith(known);
  return llvm::Error::success();
}

llvm::Error resolveShapes(PassContext &ctx) {
  for (auto &f : ctx.module().functions) {
    do
      if (llvm::Error e = unifyDims(*f))
        return e;
    while (limitByTables(*f));
    const KnownSymbols known(*f);
    for (auto &op : f->ops()) {
      resolveOperands(*op, known);
      if (op->numResults() == 1 && !op->info().has(Terminator))
        if (llvm::Error e = materialise(*f, *op, known))
          return e;
    }
    f->eraseDeadOps();
    if (llvm::Error e = f->inferTypes())
      return e;
  }
  return llvm::Error::success();
}

} // namespace gpt2c

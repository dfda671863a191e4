// resolve-shapes: integer values that inference knows symbolically stop being computed. Reshape,
// expand, slice and the like take their shapes as attributes (`reshape(x) {shape = [batch, seq, 12,
// 64]}`), everything else that is known becomes dim_values or a constant, and the sub-graphs of
// shape, gather and concat behind them die.
//
// Dimensions that inference had to assume equal (an input's `total` broadcast against `past + seq`)
// are unified first, and minima of a length and the rows of a table that bounds it are that length.
#include "ir/Builder.h"
#include "passes/Pass.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// A symbol and what it is, where a = b: one side, or of two sums (past0 + seq, past1 + seq) what
/// they differ in.
static std::optional<std::pair<llvm::StringRef, Dim>> solved(const Dim &a, const Dim &b) {
  for (auto [symbol, other] : {std::pair(&a, &b), std::pair(&b, &a)})
    if (auto name = symbol->asSymbol(); name && !other->uses(*name))
      return std::pair(*name, *other);
  const Dim difference = a - b; // s - t
  auto terms = difference.terms();
  if (terms.size() == 2 && terms[0].symbols.size() == 1 && terms[1].symbols.size() == 1 &&
      std::abs(terms[0].coefficient) == 1 && terms[0].coefficient == -terms[1].coefficient)
    return std::pair(terms[0].symbols[0], Dim::symbol(terms[1].symbols[0]));
  return std::nullopt;
}

/// Infers all types again; every symbol found equal to an expression is replaced by it until
/// nothing changes.
static llvm::Error unifyDims(Function &f) {
  for (int round = 0; round < 16; ++round) {
    std::vector<std::pair<Dim, Dim>> equalities;
    inferredEqualities = &equalities;
    llvm::Error e = f.inferTypes();
    inferredEqualities = nullptr;
    if (e)
      return e;
    bool changed = false;
    for (auto &[a, b] : equalities) {
      auto solution = solved(a, b);
      if (!solution)
        continue;
      f.substitute(solution->first, solution->second);
      changed = true;
      break; // the remaining pairs may mention the symbol just replaced
    }
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

/// Symbols, and what they are at most where the graph can run: lengths s of texts whose positions
/// 0, 1, ... s - 1 are looked up in a table.
static SymbolMap lengthsOfTables(const Function &f) {
  SymbolMap most;
  for (auto &op : f.ops()) {
    if (!op->is(OpCode::Gather) || op->intAttr("axis") != 0 || !op->operand(0)->def() ||
        !op->operand(0)->def()->is(OpCode::Constant))
      continue;
    const Op *index = op->operand(ops::Gather::Indices)->def();
    while (index && (index->is(OpCode::Reshape) || index->is(OpCode::Unsqueeze) ||
                     index->is(OpCode::Squeeze) || index->is(OpCode::Expand)))
      index = index->operand(0)->def();
    if (!index || !index->is(OpCode::Range) ||
        numberOf(*index, ops::Range::Start, "start") != Dim(0) ||
        numberOf(*index, ops::Range::Delta, "delta") != Dim(1))
      continue;
    const Dim &length = index->result()->type.shape[0];
    if (auto symbol = length.asSymbol()) {
      int64_t rows = *op->operand(0)->type.shape[0].constant();
      auto [it, isNew] = most.try_emplace(*symbol, rows);
      it->second = std::min(it->second, rows);
    }
  }
  return most;
}

/// Minima and maxima of such a length and a number that it does not exceed: exporters write the
/// former for parts of a stored mask.
static bool resolveMinima(Function &f) {
  const SymbolMap most = lengthsOfTables(f);
  auto atMost = [&](const Dim &a, const Dim &b) {
    auto symbol = a.asSymbol();
    auto it = symbol ? most.find(*symbol) : most.end();
    return it != most.end() && b.constant() && it->second <= *b.constant();
  };
  bool changed = false;
  for (auto &op : f.ops()) {
    if (!(op->is(OpCode::Min) || op->is(OpCode::Max)) || op->numOperands() != 2)
      continue;
    const Value *values[] = {op->operand(0), op->operand(1)};
    if (!llvm::all_of(values, [](const Value *v) { return v->content && v->content->size() == 1; }))
      continue;
    const Dim &a = values[0]->content->front(), &b = values[1]->content->front();
    if (!atMost(a, b) && !atMost(b, a))
      continue;
    Value *by = op->operand(atMost(a, b) == op->is(OpCode::Min) ? 0 : 1);
    if (by->type != op->result()->type || op->result()->uses().empty())
      continue;
    op->result()->replaceAllUsesWith(by);
    changed = true;
  }
  f.eraseDeadOps();
  return changed;
}

/// Operand `i` of `op` becomes the attribute `name`, when its content is known.
static bool operandToAttr(Op &op, unsigned i, llvm::StringRef name) {
  Value *v = op.operand(i);
  if (!v || !v->content || op.hasAttr(name))
    return false;
  op.setAttr(name, Dims(*v->content));
  op.setOperand(i, nullptr);
  return true;
}

static bool resolveOperands(Op &op) {
  switch (op.code()) {
  case OpCode::Reshape:
  case OpCode::Expand: {
    // The result's shape says more than the operand: no zeros, no -1, broadcasting done.
    if (!op.operand(ops::Reshape::Shape) || !op.operand(ops::Reshape::Shape)->content)
      return false;
    const Shape &shape = op.result()->type.shape;
    op.setAttr("shape", Dims(shape.begin(), shape.end()));
    if (op.is(OpCode::Reshape) && llvm::is_contained(shape, Dim(0)))
      op.setAttr("allowzero", true);
    op.setOperand(ops::Reshape::Shape, nullptr);
    return true;
  }
  case OpCode::ConstantOfShape:
    return operandToAttr(op, ops::ConstantOfShape::Shape, "shape");
  case OpCode::Tile:
    return operandToAttr(op, ops::Tile::Repeats, "repeats");
  case OpCode::Slice: {
    for (unsigned i = ops::Slice::Starts; i < op.numOperands(); ++i)
      if (op.operand(i) && !op.operand(i)->content)
        return false;
    bool changed = false;
    changed |= operandToAttr(op, ops::Slice::Starts, "starts");
    changed |= operandToAttr(op, ops::Slice::Ends, "ends");
    changed |= operandToAttr(op, ops::Slice::Axes, "axes");
    changed |= operandToAttr(op, ops::Slice::Steps, "steps");
    return changed;
  }
  case OpCode::Range: {
    for (unsigned i : {ops::Range::Start, ops::Range::Limit, ops::Range::Delta})
      if (op.operand(i) && !op.operand(i)->content)
        return false;
    bool changed = operandToAttr(op, ops::Range::Start, "start");
    changed |= operandToAttr(op, ops::Range::Limit, "limit");
    changed |= operandToAttr(op, ops::Range::Delta, "delta");
    return changed;
  }
  default:
    return false;
  }
}

/// Replaces a value of known content that is still computed.
static llvm::Error materialise(Function &f, Op &op) {
  Value *v = op.result();
  if (!v->content || v->uses().empty() || v->type.rank() > 1 || op.is(OpCode::Constant) ||
      op.is(OpCode::DimValues))
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
    while (resolveMinima(*f));
    for (auto &op : f->ops()) {
      resolveOperands(*op);
      if (op->numResults() == 1 && !op->info().has(Terminator))
        if (llvm::Error e = materialise(*f, *op))
          return e;
    }
    f->eraseDeadOps();
    if (llvm::Error e = f->inferTypes())
      return e;
  }
  return llvm::Error::success();
}

} // namespace gpt2c

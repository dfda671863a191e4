// resolve-shapes: integer values that inference knows symbolically stop being computed. Reshape,
// expand, slice and the like take their shapes as attributes (`reshape(x) {shape = [batch, seq, 12,
// 64]}`), everything else that is known becomes dim_values or a constant, and the sub-graphs of
// shape, gather and concat behind them die.
//
// Dimensions that inference had to assume equal (an input's `total` broadcast against `past + seq`)
// are unified first.
#include "ir/Builder.h"
#include "passes/Pass.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

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
      const Dim &symbol = a.asSymbol() ? a : b, &other = a.asSymbol() ? b : a;
      if (!symbol.asSymbol() || other.uses(*symbol.asSymbol()))
        continue;
      f.substitute(*symbol.asSymbol(), other);
      changed = true;
      break; // the remaining pairs may mention the symbol just replaced
    }
    if (!changed)
      return llvm::Error::success();
  }
  return llvm::Error::success();
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
    if (llvm::Error e = unifyDims(*f))
      return e;
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

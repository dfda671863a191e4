#include "passes/proof/TokenWise.h"

#include "passes/proof/masks/Probe.h"

#include "llvm/ADT/STLExtras.h"

#include <array>

namespace gpt2c {

/// True when `axis` of x is as long whatever the number of tokens.
static bool isFixed(const Value *x, int64_t axis) {
  axis = axis < 0 ? axis + int64_t(x->type.rank()) : axis;
  return axis >= 0 && axis < int64_t(x->type.rank()) && x->type.shape[axis].isConstant();
}

static bool areFixed(const Value *x, llvm::ArrayRef<Dim> axes) {
  return llvm::all_of(axes,
                      [&](const Dim &a) { return a.constant() && isFixed(x, *a.constant()); });
}

static bool isConstant(const Value *v) { return v->def() && v->def()->is(OpCode::Constant); }

/// A constant that broadcasts over tokens: along an axis that depends on their number it is 1.
static bool spreads(const Value *constant, const Value *result) {
  const Shape &from = constant->type.shape, &to = result->type.shape;
  for (size_t i = 0; i < from.size(); ++i)
    if (from[from.size() - 1 - i] != Dim(1) && !to[to.size() - 1 - i].isConstant())
      return false;
  return true;
}

/// True when the dimensions in front of `shape` multiply to `rows`.
static bool hasRows(llvm::ArrayRef<Dim> shape, const Dim &rows) {
  Dim count(1);
  return llvm::any_of(shape, [&](const Dim &d) { return (count = count * d) == rows; });
}

/// True when each token keeps its own elements, one batch of them or one for all.
static bool keepsTokens(const Value *x, const Value *y, const Dim &batch, const Dim &tokens) {
  return llvm::any_of(std::array{batch * tokens, tokens}, [&](const Dim &rows) {
    return hasRows(x->type.shape, rows) && hasRows(y->type.shape, rows);
  });
}

bool isTokenWise(const Op &op, const Dim &batch, const Dim &tokens) {
  const Value *x = op.operand(0);
  if (op.info().has(Elementwise))
    return llvm::all_of(op.operands(), [&](const Value *v) {
      return !v || !isConstant(v) || spreads(v, op.result());
    });
  switch (op.code()) {
  case OpCode::Linear:
  case OpCode::RmsNorm:
  case OpCode::Expand:
    return true;
  case OpCode::LayerNorm: {
    int64_t axis = op.intAttr("axis"), rank = x->type.rank();
    return llvm::all_of(llvm::drop_begin(x->type.shape, axis < 0 ? axis + rank : axis),
                        [](const Dim &d) { return d.isConstant(); });
  }
  case OpCode::MatMul:
    return isConstant(op.operand(ops::MatMul::B));
  case OpCode::Reshape:
  case OpCode::Unsqueeze:
  case OpCode::Squeeze:
    return keepsTokens(x, op.result(), batch, tokens);
  case OpCode::Transpose:
    // Tokens stay in front of what belongs to them.
    return op.intsAttr("perm")[0] == 0 && op.intsAttr("perm")[1] == 1;
  case OpCode::Slice: // a table that is cut to the tokens says where they stand
    return op.hasAttr("axes") && areFixed(x, op.dimsAttr("axes")) &&
           areFixed(op.result(), op.dimsAttr("axes"));
  case OpCode::Concat:
    return isFixed(op.result(), op.intAttr("axis"));
  case OpCode::Gather: // of columns, not of rows of a table
    return !isConstant(x) && isConstant(op.operand(ops::Gather::Indices)) &&
           isFixed(x, op.intAttr("axis"));
  case OpCode::Dequantize: // of weights
    return isConstant(x);
  case OpCode::Softmax:
  case OpCode::ArgMax:
    return isFixed(x, op.intAttr("axis"));
  case OpCode::ReduceSum:
  case OpCode::ReduceMean:
  case OpCode::ReduceMax:
  case OpCode::ReduceMin:
  case OpCode::ReduceProd:
    return op.hasAttr("axes") && areFixed(x, op.dimsAttr("axes"));
  default:
    return false;
  }
}

std::optional<Obstacle> tokenMixing(Value *root, llvm::ArrayRef<Op *> embeddings, const Dim &batch,
                                    const Dim &tokens) {
  constexpr const char *may = " may depend on other tokens or on where they stand";
  if (!tokens.asSymbol())
    return std::nullopt;
  if (root->def() && root->def()->is(OpCode::Rope) && llvm::is_contained(embeddings, root->def()))
    root = root->def()->operand(ops::Rope::X); // positions are looked at with those of tables
  BackwardSlice slice = backwardSlice(root, [&](Value *v) {
    return v->def()->is(OpCode::Attention) || llvm::is_contained(embeddings, v->def());
  });
  for (Value *leaf : slice.leaves) {
    if (!leaf->def())
      return Obstacle{"argument " + leaf->name + may};
    if (leaf->def()->is(OpCode::Rope))
      if (auto mixing = tokenMixing(leaf, embeddings, batch, tokens))
        return mixing;
  }
  for (const Op *op : llvm::reverse(slice.ops))
    if (!op->is(OpCode::Constant) && !isTokenWise(*op, batch, tokens)) {
      Obstacle why{op->describe() + may, op};
      for (const char *name : {"axis", "axes", "perm"})
        if (op->hasAttr(name))
          why.attribute = name;
      return why;
    }
  return std::nullopt;
}

} // namespace gpt2c

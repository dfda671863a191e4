#include "passes/proof/AttentionProbe.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace gpt2c {

constexpr unsigned trials = 4;

/// Copies, and products with one-element constants.
static bool isCopy(const Op *op) {
  if (op->is(OpCode::Constant) || op->is(OpCode::DimValues) || op->info().has(DataMovement))
    return true;
  if (op->is(OpCode::Cast))
    return isFloat(op->result()->type.dtype) && isFloat(op->operand(0)->type.dtype);
  if (op->is(OpCode::Mul))
    return scalarConstant(op->operand(0)) || scalarConstant(op->operand(1));
  return op->is(OpCode::Div) && scalarConstant(op->operand(ops::Div::B));
}

/// The numbered element of `v` (1, 2, ... in row-major order of its [b, t, width] or past source),
/// with the factor.
struct Numbering {
  const Tensor &elements; // [b, h, t, d] or, transposed, [b, h, d, t]
  bool transposed;
  double at(int64_t b, int64_t h, int64_t t, int64_t d) const {
    auto s = elements.shape();
    int64_t i = transposed ? ((b * s[1] + h) * s[2] + d) * s[3] + t
                           : ((b * s[1] + h) * s[2] + t) * s[3] + d;
    return elements.data<double>()[i];
  }
};

static bool near(double a, double b) {
  return std::abs(a - b) <= 1e-9 * (std::abs(a) + std::abs(b));
}

static bool checkCurrent(const Numbering &n, llvm::ArrayRef<int64_t> source, int64_t past,
                         HeadLayout &l, bool first) {
  int64_t batch = source[0], seq = source[1], width = source[2];
  if (first) {
    auto copiesFirst = [&](int64_t h) { return n.at(0, h, past, 0) == n.at(0, 0, past, 0); };
    while (l.group < l.heads && copiesFirst(l.group))
      ++l.group;
    if (l.heads % l.group != 0)
      return false;
    // Neighbours along head_dim, or where there is one only along heads or tokens, differ by the
    // factor times the distance in the source; the first element then tells the offset.
    double step = l.headDim > 1       ? n.at(0, 0, past, 1) - n.at(0, 0, past, 0)
                  : l.heads > l.group ? n.at(0, l.group, past, 0) - n.at(0, 0, past, 0)
                  : seq > 1 ? (n.at(0, 0, past + 1, 0) - n.at(0, 0, past, 0)) / double(width)
                            : 1;
    if (!(std::abs(step) > 0))
      return false;
    double offset = n.at(0, 0, past, 0) / step - 1;
    l.factor = step;
    l.offset = std::llround(offset);
    if (l.offset < 0 || l.offset + l.sourceHeads() * l.headDim > width)
      return false;
  }
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < l.heads; ++h)
      for (int64_t t = 0; t < seq; ++t)
        for (int64_t d = 0; d < l.headDim; ++d) {
          const int64_t head = h / l.group,
                        number = (b * seq + t) * width + l.offset + head * l.headDim + d + 1;
          if (!near(n.at(b, h, past + t, d), l.factor * double(number)))
            return false;
        }
  return true;
}

static bool checkPast(const Numbering &n, llvm::ArrayRef<int64_t> shape, double base,
                      HeadLayout &l) {
  bool stacked = shape.size() == 5;
  int64_t skip = stacked ? 1 : 0;
  if (shape.size() != (stacked ? 5u : 4u) || (stacked && shape[0] != 2) ||
      shape[skip + 1] != l.sourceHeads() || shape[skip + 3] != l.headDim)
    return false;
  int64_t batch = shape[skip], past = shape[skip + 2];
  int64_t heads = l.sourceHeads(), part = batch * heads * past * l.headDim;
  auto matches = [&](int64_t which) {
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < l.heads; ++h)
        for (int64_t t = 0; t < past; ++t)
          for (int64_t d = 0; d < l.headDim; ++d) {
            const int64_t head = b * heads + h / l.group,
                          number = which * part + (head * past + t) * l.headDim + d + 1;
            if (!near(n.at(b, h, t, d), l.factor * (base + double(number))))
              return false;
          }
    return true;
  };
  if (!stacked) {
    l.pastPart = -1;
    return matches(0);
  }
  for (int64_t which : {0, 1})
    if (matches(which)) {
      l.pastPart = which;
      return true;
    }
  return false;
}

/// [batch, tokens, heads, head_dim] that are computed as such, by a norm of each.
static bool isHeads(const Value *v) {
  return v->def() && (v->def()->is(OpCode::RmsNorm) || v->def()->is(OpCode::LayerNorm)) &&
         v->type.rank() == 4 && v->type.shape[2].isConstant() && v->type.shape[3].isConstant();
}

std::optional<HeadLayout> probeHeads(const Function &f, Value *v, bool transposed, Obstacle &why) {
  if (v->type.rank() != 4) {
    why = "it has rank " + std::to_string(v->type.rank()) + " instead of 4";
    return std::nullopt;
  }
  auto heads = v->type.shape[1].constant(), headDim = v->type.shape[transposed ? 2 : 3].constant();
  if (!heads || !headDim) {
    why = "the number of heads or the head size is not constant: " + v->type.str();
    return std::nullopt;
  }
  if (v->def() && !isCopy(v->def())) {
    why = "it is no copy but " + v->def()->describe();
    why.op = v->def();
    return std::nullopt;
  }
  BackwardSlice slice = backwardSlice(v, [](Value *u) { return !isCopy(u->def()); });
  HeadLayout l;
  l.heads = *heads;
  l.headDim = *headDim;
  for (Value *leaf : slice.leaves) {
    if (!leaf->def() && isFloat(leaf->type.dtype) && leaf->type.rank() >= 4 && !l.pastSource)
      l.pastSource = leaf;
    else if ((leaf->type.rank() == 3 || isHeads(leaf)) && !l.source)
      l.source = leaf;
    else {
      why = "besides copies it depends on " +
            (leaf->def() ? leaf->def()->describe() : "argument " + leaf->name);
      why.op = leaf->def();
      return std::nullopt;
    }
  }
  if (!l.source) {
    why = "it is not copied from one [batch, tokens, width] tensor";
    return std::nullopt;
  }
  DType source = l.source->type.dtype;
  for (Op *op : slice.ops) {
    DType type = op->result()->type.dtype;
    if (op->is(OpCode::Cast) && type != source && byteSize(type) <= byteSize(source))
      l.rounding = op;
  }
  for (unsigned trial = 0; trial < trials; ++trial) {
    SymbolMap symbols = probeSymbols(f, trial);
    auto sourceShape = concreteShape(l.source->type, symbols);
    if (!sourceShape) {
      why = "its source, " + l.source->type.str() + ", is too large to try it out";
      return std::nullopt;
    }
    Executor::Bindings bound{{l.source, iotaTensor(*sourceShape)}};
    if (sourceShape->size() == 4) { // heads as columns
      int64_t headDim = sourceShape->pop_back_val();
      sourceShape->back() *= headDim;
    }
    int64_t past = 0;
    double base = 1e9;
    llvm::SmallVector<int64_t, 4> pastShape;
    if (l.pastSource) {
      auto shape = concreteShape(l.pastSource->type, symbols);
      if (!shape) {
        why = "its past, " + l.pastSource->type.str() + ", is too large to try it out";
        return std::nullopt;
      }
      pastShape = *shape;
      past = pastShape[pastShape.size() - 2];
      Tensor t = iotaTensor(pastShape);
      for (int64_t i = 0; i < t.count(); ++i)
        t.data<double>()[i] += base;
      bound[l.pastSource] = t;
    }
    auto elements = probe(f, v, bound, symbols, &why.reason);
    if (!elements)
      return std::nullopt;
    int64_t tokens = elements->dim(transposed ? 3 : 2);
    if (elements->dim(0) != (*sourceShape)[0] || tokens != past + (*sourceShape)[1]) {
      why = "its number of sequences or tokens is not that of its source";
      return std::nullopt;
    }
    Numbering n{*elements, transposed};
    if (!checkCurrent(n, *sourceShape, past, l, trial == 0) ||
        (l.pastSource && !checkPast(n, pastShape, base, l))) {
      why = "its elements are not laid out by heads";
      return std::nullopt;
    }
  }
  return l;
}

} // namespace gpt2c

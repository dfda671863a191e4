#include "passes/proof/masks/AttentionProbe.h"

#include "passes/proof/Element.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace gpt2c {

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

/// The element behind products and quotients with one number, and what they multiply it by.
static std::pair<Elements::Ref, double> withoutScales(Elements::Ref e) {
  double factor = 1;
  while (e->kind == Element::Computed && (e->op->is(OpCode::Mul) || e->op->is(OpCode::Div))) {
    auto a = scalarConstant(e->op->operand(0)), b = scalarConstant(e->op->operand(1));
    if (!a && !b)
      break;
    factor *= e->op->is(OpCode::Div) ? 1 / *b : b ? *b : *a;
    e = e->operands[b ? 0 : 1];
  }
  return {e, factor};
}

namespace {

/// An element of keys, values or queries by its own indices.
struct HeadElement {
  Elements &elements;
  Dim b, h, t, d;
  int64_t heads, headDim;

  /// Calls `f` for every head and column with `e` as a number; false where it is none or `f` says
  /// so.
  bool forAll(Elements::Ref e, llvm::function_ref<bool(int64_t, int64_t, int64_t)> f) const {
    SymbolMap symbols;
    auto hs = h.asSymbol(), ds = d.asSymbol();
    int64_t &head = symbols[hs.value_or("h")], &column = symbols[ds.value_or("d")];
    // Columns next to each other are so in the source, mostly: then one of each head tells.
    Elements::Ref first = ds ? elements.substitute(e, *ds, Dim(0)) : e;
    const bool inARow = ds && e->kind == Element::Number && e->number - d == first->number;
    for (head = 0; head < heads; ++head) {
      column = 0;
      auto at = valueOf(first, symbols);
      if (!at)
        return false;
      for (column = 0; column < headDim; ++column) {
        auto own = inARow ? std::optional(*at + column) : valueOf(e, symbols);
        if (!own || !f(head, column, *own))
          return false;
      }
    }
    return true;
  }
};

} // namespace

/// Whether the i-th index of what is read is `d`, which is 0 along an axis of one.
static bool isIndex(const Element &read, unsigned i, const Dim &d) {
  const Dim at = read.value->type.shape[i] == Dim(1) ? Dim(0) : d;
  return read.operands[i]->kind == Element::Number && read.operands[i]->number == at;
}

/// source[b, t, column] of new tokens, which begin at `past`.
static bool isCurrent(const HeadElement &of, Elements::Ref e, const Dim &past, HeadLayout &l) {
  if (e->kind != Element::Read || e->value != l.source)
    return false;
  if (!isIndex(*e, 0, of.b) || !isIndex(*e, 1, of.t - past))
    return false;
  // Heads as columns.
  const bool byHeads = e->operands.size() == 4;
  const int64_t width = byHeads ? *l.source->type.shape[3].constant() : 0;
  std::vector<int64_t> columns;
  columns.reserve(l.heads * l.headDim);
  auto collect = [&](int64_t, int64_t, int64_t at) { return columns.push_back(at), true; };
  if (!of.forAll(e->operands[2], collect))
    return false;
  if (byHeads) {
    size_t next = 0;
    if (!of.forAll(e->operands[3], [&](int64_t, int64_t, int64_t at) {
          columns[next] = columns[next] * width + at;
          ++next;
          return true;
        }))
      return false;
  }
  l.offset = columns[0];
  while (l.group < l.heads && columns[l.group * l.headDim] == l.offset)
    ++l.group;
  if (l.heads % l.group != 0)
    return false;
  for (int64_t h = 0, i = 0; h < l.heads; ++h)
    for (int64_t d = 0; d < l.headDim; ++d, ++i)
      if (columns[i] != l.offset + h / l.group * l.headDim + d)
        return false;
  return true;
}

/// past[b, h / group, t, d] of old tokens, or of one part of [2, ..].
static bool isPast(const HeadElement &of, Elements::Ref e, HeadLayout &l) {
  if (e->kind != Element::Read || e->value != l.pastSource)
    return false;
  const unsigned skip = e->operands.size() == 5 ? 1 : 0;
  const Shape &shape = l.pastSource->type.shape;
  if (e->operands.size() != 4 + skip || (skip && shape[0] != Dim(2)) ||
      shape[skip + 1] != Dim(l.sourceHeads()) || shape[skip + 3] != Dim(l.headDim) ||
      !isIndex(*e, skip, of.b) || !isIndex(*e, skip + 2, of.t))
    return false;
  l.pastPart = -1;
  if (skip) {
    auto part =
        e->operands[0]->kind == Element::Number ? e->operands[0]->number.constant() : std::nullopt;
    if (!part)
      return false;
    l.pastPart = *part;
  }
  return of.forAll(e->operands[skip + 1], [&](int64_t h, int64_t, int64_t at) {
    return at == h / l.group;
  }) && of.forAll(e->operands[skip + 3], [&](int64_t, int64_t d, int64_t at) { return at == d; });
}

/// The element of `v` at every place is one of the source or of the past, as `l` says from here on.
static bool isLaidOut(const Value *v, bool transposed, HeadLayout &l, Obstacle &why) {
  Elements elements;
  elements.passCasts();
  elements.stopAt(l.source);
  if (l.pastSource)
    elements.stopAt(l.pastSource);
  const Shape &s = v->type.shape;
  auto index = [&](const Dim &extent) {
    return extent == Dim(1) ? Dim(0) : elements.variable(extent);
  };
  const Dim tokens = s[transposed ? 3 : 2];
  HeadElement of{elements, index(s[0]), index(s[1]), index(tokens), index(Dim(l.headDim)),
                 l.heads,  l.headDim};
  Elements::Ref at[] = {elements.number(of.b), elements.number(of.h), elements.number(of.t),
                        elements.number(of.d)};
  if (transposed)
    std::swap(at[2], at[3]);
  const Dim past = l.pastSource ? l.pastSource->type.shape[l.pastSource->type.rank() - 2] : Dim(0);
  if (s[0] != l.source->type.shape[0] || tokens != past + l.source->type.shape[1]) {
    why = "its number of sequences or tokens is not that of its source";
    return false;
  }
  auto [e, factor] = withoutScales(elements.at(v, at));
  Elements::Ref current = e, old = nullptr;
  if (l.pastSource && e->kind == Element::Choice &&
      e->operands[0] == elements.number(of.t - past) && e->operands[1] == elements.number(0)) {
    auto [oldPart, oldFactor] = withoutScales(e->operands[2]);
    auto [newPart, newFactor] = withoutScales(e->operands[3]);
    if (oldFactor == newFactor)
      old = oldPart, current = newPart, factor *= newFactor;
  }
  l.factor = factor;
  if (factor != 0 && std::isfinite(factor) && isCurrent(of, current, past, l) &&
      (!l.pastSource || (old && isPast(of, old, l))))
    return true;
  why = "its elements are not laid out by heads, for every token of every sequence";
  return false;
}

/// [batch, tokens, heads, head_dim] that are computed as such, by a norm of each.
static bool isHeads(const Value *v) {
  return v->def() && (v->def()->is(OpCode::RmsNorm) || v->def()->is(OpCode::LayerNorm)) &&
         v->type.rank() == 4 && v->type.shape[2].isConstant() && v->type.shape[3].isConstant();
}

std::optional<HeadLayout> probeHeads(const Function &, Value *v, bool transposed, Obstacle &why) {
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
  return isLaidOut(v, transposed, l, why) ? std::optional(l) : std::nullopt;
}

} // namespace gpt2c

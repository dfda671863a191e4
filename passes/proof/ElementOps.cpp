// What each op makes of an element: where it comes from, and what is computed of it.
#include "ir/ops/Common.h"
#include "passes/Rewrite.h"
#include "passes/proof/Element.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace gpt2c {

/// Nests deeper than any mask or rotation are not followed.
constexpr unsigned deepestElement = 400;

Elements::Ref Elements::at(const Value *v, Indices indices) {
  assert(indices.size() == v->type.rank() && "one index for each axis");
  std::pair<const Value *, std::vector<Ref>> key(v, {indices.begin(), indices.end()});
  if (auto it = known_.find(key); it != known_.end())
    return it->second;
  const Op *op = v->def();
  if (depth_ >= deepestElement)
    return unknown(op);
  ++depth_;
  Ref e = nullptr;
  if (auto it = defined_.find(v); it != defined_.end())
    e = it->second(indices);
  if (!e)
    e = op ? ofOp(*op, v, indices) : read(v, indices);
  --depth_;
  return known_[key] = e;
}

Elements::Ref Elements::ofOp(const Op &op, const Value *v, Indices indices) {
  if (v->content && v->type.rank() <= 1 && !isFloat(v->type.dtype)) {
    auto i = indices.empty() ? std::optional<int64_t>(0) : indices[0]->number.constant();
    bool known = indices.empty() || indices[0]->kind == Element::Number;
    if (known && i && *i >= 0 && *i < int64_t(v->content->size()))
      return number((*v->content)[*i]);
  }
  auto operand = [&] { return op.operand(0); };
  switch (op.code()) {
  case OpCode::Constant:
    return ofConstant(op, indices);
  case OpCode::Reshape:
  case OpCode::Squeeze:
  case OpCode::Unsqueeze:
    return ofReshape(op, indices);
  case OpCode::Transpose: {
    auto perm = op.intsAttr("perm");
    llvm::SmallVector<Ref, 4> from(indices.size());
    for (auto [to, axis] : llvm::enumerate(perm))
      from[axis] = indices[to];
    return at(operand(), from);
  }
  case OpCode::Expand: {
    const Shape &from = operand()->type.shape, &to = v->type.shape;
    llvm::SmallVector<Ref, 4> at0;
    for (size_t i = 0, skip = to.size() - from.size(); i < from.size(); ++i) {
      if (from[i] != Dim(1) && from[i] != to[skip + i])
        return unknown(&op);
      at0.push_back(from[i] == Dim(1) ? number(0) : indices[skip + i]);
    }
    return at(operand(), at0);
  }
  case OpCode::Tile:
    return ofTile(op, indices);
  case OpCode::Concat:
    return ofConcat(op, indices);
  case OpCode::Slice:
    return ofSlice(op, indices);
  case OpCode::Gather:
    return ofGather(op, indices);
  case OpCode::GatherElements:
    return ofGatherElements(op, indices);
  case OpCode::GatherND:
    return ofGatherND(op, indices);
  case OpCode::Trilu:
    return ofTrilu(op, indices);
  case OpCode::Range:
    return ofRange(op, indices);
  case OpCode::ConstantOfShape:
    if (!isFloat(v->type.dtype))
      return number(int64_t(op.floatAttr("value")));
    return real(Tensor::scalar(op.floatAttr("value")).cast(v->type.dtype).asDouble(0));
  case OpCode::ReduceSum:
  case OpCode::ReduceMean:
  case OpCode::ReduceMax:
  case OpCode::ReduceMin:
  case OpCode::ReduceProd:
    return ofReduction(op, indices);
  case OpCode::CumSum:
    return ofCumSum(op, indices);
  case OpCode::MatMul:
  case OpCode::Linear:
    return ofProduct(op, indices);
  default:
    break;
  }
  if (!op.info().has(Elementwise) || op.numResults() != 1)
    return unknown(&op);
  llvm::SmallVector<Ref, 4> operands;
  for (const Value *o : op.operands()) {
    if (!o)
      return unknown(&op);
    // Broadcast from the right.
    const Shape &from = o->type.shape, &to = v->type.shape;
    llvm::SmallVector<Ref, 4> own;
    for (size_t i = 0, skip = to.size() - from.size(); i < from.size(); ++i)
      own.push_back(from[i] == Dim(1) ? number(0) : indices[skip + i]);
    operands.push_back(at(o, own));
  }
  return ofElementwise(op, operands);
}

//===-- copies ------------------------------------------------------------------------------===//

Elements::Ref Elements::ofConstant(const Op &op, Indices indices) {
  const Tensor &t = op.constant;
  if (!t.valid())
    return unknown(&op);
  if (isFloat(t.dtype()))
    return t.count() == 1 ? real(t.asDouble(0)) : read(op.result(), indices);
  int64_t place = 0;
  for (auto [i, index] : llvm::enumerate(indices)) {
    auto c = index->kind == Element::Number ? index->number.constant() : std::nullopt;
    if (!c || *c < 0 || *c >= t.dim(int(i)))
      return read(op.result(), indices);
    place = place * t.dim(int(i)) + *c;
  }
  return number(t.asInt(place));
}

Elements::Ref Elements::ofReshape(const Op &op, Indices indices) {
  struct Digit {
    Ref value;
    Dim extent;
  };
  const Value *x = op.operand(0);
  const Shape &from = x->type.shape, &to = op.result()->type.shape;
  llvm::SmallVector<Digit, 4> digits;
  for (auto [index, extent] : llvm::zip_equal(indices, to))
    if (extent != Dim(1))
      digits.push_back({index, extent});
  llvm::SmallVector<Ref, 4> result(from.size(), number(0));
  for (size_t i = from.size(); i-- > 0;) {
    Dim size(1);
    while (size != from[i]) {
      auto need = from[i].exactDiv(size);
      if (!need || digits.empty())
        return unknown(&op);
      auto &[value, extent] = digits.back();
      if (need->exactDiv(extent)) {
        result[i] = sum(result[i], times(value, size));
        size = size * extent;
        digits.pop_back();
        continue;
      }
      auto rest = extent.exactDiv(*need);
      if (!rest)
        return unknown(&op);
      result[i] = sum(result[i], times(remainder(value, *need), size));
      size = from[i];
      value = quotient(value, *need);
      extent = *rest;
    }
  }
  return at(x, result);
}

Elements::Ref Elements::ofConcat(const Op &op, Indices indices) {
  int64_t axis = op.intAttr("axis");
  axis = axis < 0 ? axis + int64_t(indices.size()) : axis;
  llvm::SmallVector<Dim, 4> begins;
  Dim begin;
  for (const Value *v : op.operands()) {
    begins.push_back(begin);
    begin = begin + v->type.shape[axis];
  }
  Ref result = nullptr, index = indices[axis];
  for (size_t i = begins.size(); i-- > 0;) {
    // Parts that end in front of the index or begin behind it are not looked at.
    auto known = [&](const Dim &d) { return index->kind == Element::Number && isNonNegative(d); };
    if (op.operand(i)->type.shape[axis] == Dim(0) || known(begins[i] - index->number - Dim(1)) ||
        (result && known(index->number - begins[i] - op.operand(i)->type.shape[axis])))
      continue;
    llvm::SmallVector<Ref, 4> own(indices.begin(), indices.end());
    own[axis] = sum(index, number(begins[i] * Dim(-1)));
    Ref part = at(op.operand(i), own);
    result = !result ? part : choice(index, number(begins[i + 1]), part, result);
  }
  return result ? result : unknown(&op);
}

Elements::Ref Elements::ofSlice(const Op &op, Indices indices) {
  const Value *x = op.operand(0);
  if (!op.hasAttr("starts") || !op.hasAttr("ends") || op.operand(ops::Slice::Axes) ||
      op.operand(ops::Slice::Steps))
    return unknown(&op);
  const Dims &starts = op.dimsAttr("starts");
  llvm::SmallVector<Ref, 4> from(indices.begin(), indices.end());
  for (size_t i = 0; i < starts.size(); ++i) {
    auto axis = op.hasAttr("axes") ? op.dimsAttr("axes")[i].constant() : std::optional<int64_t>(i);
    auto step =
        op.hasAttr("steps") ? op.dimsAttr("steps")[i].constant() : std::optional<int64_t>(1);
    if (!axis || !step)
      return unknown(&op);
    *axis = *axis < 0 ? *axis + int64_t(indices.size()) : *axis;
    const Dim &size = x->type.shape[*axis], &start = starts[i];
    auto c = start.constant();
    Ref begin = nullptr;
    if (*step < 0)
      begin = c && (*c == -1 || *c >= int64_t(INT32_MAX)) ? number(size - Dim(1)) : nullptr;
    else if (c && *c <= -int64_t(INT32_MAX)) // to the end, whatever number is written
      begin = number(0);
    else if (isNonNegative(start)) // one behind the end leaves nothing
      begin = number(start);
    else if (isNonNegative(Dim(-1) - start))
      begin = highest(number(size + start), number(0));
    if (!begin)
      return unknown(&op);
    from[*axis] = sum(times(from[*axis], Dim(*step)), begin);
  }
  return at(x, from);
}

Elements::Ref Elements::ofTile(const Op &op, Indices indices) {
  const Value *x = op.operand(0);
  llvm::SmallVector<Ref, 4> from;
  for (auto [i, index] : llvm::enumerate(indices)) {
    const Dim &size = x->type.shape[i];
    from.push_back(size == op.result()->type.shape[i] ? index : remainder(index, size));
  }
  return at(x, from);
}

Elements::Ref Elements::wrapped(Ref index, const Dim &size) {
  if (isNonNegative(index))
    return index;
  if (index->kind == Element::Number && isNonNegative(Dim(-1) - index->number))
    return number(index->number + size);
  return choice(index, number(0), sum(index, number(size)), index);
}

Elements::Ref Elements::ofGather(const Op &op, Indices indices) {
  using enum ops::Gather::Operand;
  const Value *x = op.operand(X), *rows = op.operand(Indices);
  int64_t axis = op.intAttr("axis"), rank = rows->type.rank();
  axis = axis < 0 ? axis + int64_t(x->type.rank()) : axis;
  llvm::SmallVector<Ref, 4> from(indices.take_front(axis));
  from.push_back(wrapped(at(rows, indices.slice(axis, rank)), x->type.shape[axis]));
  from.append(indices.begin() + axis + rank, indices.end());
  return at(x, from);
}

Elements::Ref Elements::ofGatherElements(const Op &op, Indices indices) {
  using enum ops::GatherElements::Operand;
  const Value *x = op.operand(X);
  int64_t axis = op.intAttr("axis");
  axis = axis < 0 ? axis + int64_t(x->type.rank()) : axis;
  llvm::SmallVector<Ref, 4> from(indices.begin(), indices.end());
  from[axis] = wrapped(at(op.operand(Indices), indices), x->type.shape[axis]);
  return at(x, from);
}

Elements::Ref Elements::ofGatherND(const Op &op, Indices indices) {
  using enum ops::GatherND::Operand;
  const Value *x = op.operand(X), *tuples = op.operand(Indices);
  const size_t batch = op.intAttr("batch_dims"), lead = tuples->type.rank() - 1;
  auto depth = tuples->type.shape.back().constant();
  if (!depth)
    return unknown(&op);
  llvm::SmallVector<Ref, 4> from(indices.take_front(batch));
  llvm::SmallVector<Ref, 4> place(indices.take_front(lead));
  place.push_back(nullptr);
  for (int64_t k = 0; k < *depth; ++k) {
    place.back() = number(k);
    from.push_back(wrapped(at(tuples, place), x->type.shape[batch + k]));
  }
  from.append(indices.begin() + int64_t(lead), indices.end());
  return at(x, from);
}

Elements::Ref Elements::ofTrilu(const Op &op, Indices indices) {
  using enum ops::Trilu::Operand;
  const Value *x = op.operand(X), *diagonal = op.operand(K);
  Ref k = number(0);
  if (diagonal) {
    llvm::SmallVector<Ref, 1> first(diagonal->type.rank(), number(0));
    k = at(diagonal, first);
  }
  Ref row = sum(indices[indices.size() - 2], k), column = indices.back();
  Ref kept = at(x, indices);
  Ref zero = isFloat(x->type.dtype) ? real(0) : number(0);
  // Below the diagonal is column < row + k; on it is column < row + k + 1.
  return op.boolAttr("upper") ? choice(column, row, zero, kept)
                              : choice(column, sum(row, number(1)), kept, zero);
}

Elements::Ref Elements::ofRange(const Op &op, Indices indices) {
  auto of = [&](llvm::StringRef name, unsigned i) {
    return op.hasAttr(name) ? number(op.dimsAttr(name)[0])
           : op.operand(i) && !isFloat(op.operand(i)->type.dtype)
               ? at(op.operand(i), llvm::SmallVector<Ref, 1>(op.operand(i)->type.rank(), number(0)))
               : nullptr;
  };
  Ref start = of("start", ops::Range::Start), delta = of("delta", ops::Range::Delta);
  if (!start || !delta || delta->kind != Element::Number)
    return unknown(&op);
  return sum(start, times(indices[0], delta->number));
}

//===-- reductions --------------------------------------------------------------------------===//

Elements::Ref Elements::ofReduction(const Op &op, Indices indices) {
  const Value *x = op.operand(0);
  const int64_t rank = x->type.rank();
  std::vector<bool> reduced(rank, !op.hasAttr("axes") || op.dimsAttr("axes").empty());
  if (op.numOperands() > 1)
    return unknown(&op);
  if (op.hasAttr("axes"))
    for (int64_t axis : op.intsAttr("axes"))
      reduced[axis < 0 ? axis + rank : axis] = true;
  llvm::SmallVector<Ref, 4> from;
  Element e{.kind = Element::Reduced, .op = &op};
  size_t next = 0;
  for (int64_t i = 0; i < rank; ++i) {
    if (!reduced[i]) {
      from.push_back(indices[next++]);
      continue;
    }
    next += op.boolAttr("keepdims");
    const Dim &extent = x->type.shape[i];
    Dim index = extent == Dim(1) ? Dim(0) : variable(extent);
    if (auto symbol = index.asSymbol())
      e.bound.push_back(*symbol);
    from.push_back(number(index));
  }
  Ref body = at(x, from);
  if (e.bound.empty())
    return body;
  // The highest or lowest of what grows in the index stands at an end; what does not depend on it
  // is the same everywhere.
  const bool highest = op.is(OpCode::ReduceMax), lowest = op.is(OpCode::ReduceMin);
  if (body->kind == Element::Number && (highest || lowest) && !isFloat(x->type.dtype)) {
    Dim d = body->number;
    bool known = true;
    for (llvm::StringRef s : e.bound) {
      Dim slope = d.substitute(s, Dim(1)) - d.substitute(s, Dim(0));
      const bool falls = isNonNegative(slope * Dim(-1));
      known &= !slope.uses(s) && (falls || isNonNegative(slope));
      d = d.substitute(s, falls != lowest ? Dim(0) : *extentOf(s) - Dim(1));
    }
    if (known)
      return number(d);
  }
  e.operands = {body};
  return make(std::move(e));
}

Elements::Ref Elements::ofCumSum(const Op &op, Indices indices) {
  const Value *x = op.operand(ops::CumSum::X);
  auto axis = scalarConstant(op.operand(ops::CumSum::Axis));
  if (!axis)
    return unknown(&op);
  int64_t a = int64_t(*axis) < 0 ? int64_t(*axis) + int64_t(x->type.rank()) : int64_t(*axis);
  llvm::SmallVector<Ref, 4> from(indices.begin(), indices.end());
  const Dim index = variable(x->type.shape[a]);
  from[a] = number(index);
  Ref body = at(x, from);
  // A sum of one integer is a product, in single precision as well.
  const DType dtype = x->type.dtype;
  std::optional<Dim> one;
  if (body->kind == Element::Number && body->number.isConstant() && !isFloat(dtype))
    one = body->number;
  if (body->kind == Element::Real && (dtype == DType::F32 || dtype == DType::F64) &&
      std::abs(body->real) <= 1)
    one = body->real == std::floor(body->real) ? std::optional(Dim(int64_t(body->real)))
                                               : std::nullopt;
  if (one && !op.boolAttr("reverse"))
    return times(sum(indices[a], number(op.boolAttr("exclusive") ? 0 : 1)), *one);
  return make({.kind = Element::Reduced,
               .op = &op,
               .operands = {body, indices[a]},
               .bound = {*index.asSymbol()}});
}

/// Products of one summand, as of positions and frequencies.
Elements::Ref Elements::ofProduct(const Op &op, Indices indices) {
  using enum ops::MatMul::Operand;
  const Value *a = op.operand(A), *b = op.operand(B);
  const bool linear = op.is(OpCode::Linear); // of b[columns, summands]
  if (a->type.rank() < 2 || b->type.rank() < 2 || a->type.shape.back() != Dim(1) ||
      (linear && op.operand(ops::Linear::Bias)) || (linear && op.operand(ops::Linear::Residual)))
    return unknown(&op);
  auto batchOf = [&](const Value *v) {
    llvm::SmallVector<Ref, 4> own;
    const size_t skip = indices.size() - v->type.rank();
    for (size_t i = 0; i + 2 < v->type.rank(); ++i)
      own.push_back(v->type.shape[i] == Dim(1) ? number(0) : indices[skip + i]);
    return own;
  };
  auto left = batchOf(a), right = batchOf(b);
  left.append({indices[indices.size() - 2], number(0)});
  if (linear)
    right.append({indices.back(), number(0)});
  else
    right.append({number(0), indices.back()});
  return computed(&op, {at(a, left), at(b, right)});
}

} // namespace gpt2c

#include "frontend/Builders.h"

#include <numeric>

namespace gpt2c::onnxops {

void argMax(NodeLowering &n) {
  int64_t axis = n.intAttr("axis", 0);
  bool keepDims = n.intAttr("keepdims", 1), last = n.intAttr("select_last_index", 0);
  n.out(n.emit(OpCode::ArgMax, {n.in(0)},
               {{"axis", axis}, {"keepdims", keepDims}, {"select_last_index", last}}));
}

void cumSum(NodeLowering &n) {
  bool exclusive = n.intAttr("exclusive", 0), reverse = n.intAttr("reverse", 0);
  n.out(
      n.emit(OpCode::CumSum, {n.in(0), n.in(1)}, {{"exclusive", exclusive}, {"reverse", reverse}}));
}

void gather(NodeLowering &n) {
  int64_t axis = n.intAttr("axis", 0);
  if (n.in(0) && axis < 0) // from the end
    axis += n.in(0)->type.rank();
  n.out(n.emit(OpCode::Gather, {n.in(0), n.in(1)}, {{"axis", axis}}));
}

void gatherElements(NodeLowering &n) {
  int64_t axis = n.intAttr("axis", 0);
  n.out(n.emit(OpCode::GatherElements, {n.in(0), n.in(1)}, {{"axis", axis}}));
}

void gatherND(NodeLowering &n) {
  int64_t batchDims = n.intAttr("batch_dims", 0);
  n.out(n.emit(OpCode::GatherND, {n.in(0), n.in(1)}, {{"batch_dims", batchDims}}));
}

void scatterND(NodeLowering &n) {
  std::string reduction = n.stringAttr("reduction", "none");
  if (reduction != "none")
    n.unsupported("reduction '" + reduction + "' is not supported");
  n.out(n.emit(OpCode::ScatterND, {n.in(0), n.in(1), n.in(2)}));
}

/// Index tuples of the first `depth` axes of `updates`: along `axis` those of `places`, which
/// expand to these axes, along the others each element's own.
static Value *tuplesOf(NodeLowering &n, Value *updates, unsigned depth, unsigned axis,
                       Value *places) {
  Value *sizes = n.slice(n.shapeOf(updates), 0, Dim(0), Dim(depth));
  std::vector<Value *> parts;
  for (unsigned d = 0; d < depth; ++d) {
    Value *at = places;
    if (d != axis) {
      std::vector<int64_t> others;
      for (unsigned other = 0; other < depth; ++other)
        if (other != d)
          others.push_back(other);
      at = n.iota(n.sizeOf(updates, d));
      at = others.empty() ? at : n.unsqueeze(at, others);
    }
    parts.push_back(n.unsqueeze(n.emit(OpCode::Expand, {at, sizes}), {int64_t(depth)}));
  }
  return n.concat(parts, depth);
}

/// y = x with y[.., indices[i], ..] = updates[i], where indices are along one axis.
void scatterElements(NodeLowering &n) {
  std::string reduction = n.stringAttr("reduction", "none");
  if (reduction != "none")
    return (void)n.unsupported("reduction '" + reduction + "' is not supported");
  Value *x = n.in(0), *indices = n.in(1), *updates = n.in(2);
  if (n.failed())
    return;
  const unsigned rank = unsigned(x->type.rank()), axis = n.axis(n.intAttr("axis", 0), x);
  if (n.failed())
    return;
  if (rank == 0 || indices->type.rank() != rank || updates->type.rank() != rank)
    return (void)n.invalid("data, indices and updates have to have as many axes, at least one");
  Value *at = tuplesOf(n, updates, rank, axis, n.cast(indices, DType::I64));
  n.out(n.emit(OpCode::ScatterND, {x, at, updates}));
}

/// A cache with updates written along an axis, in sequence b from places[b] on, or from 0;
/// circular: from its end on at its begin.
void tensorScatter(NodeLowering &n) {
  Value *cache = n.in(0), *updates = n.in(1), *places = n.optional(2);
  const std::string mode = n.stringAttr("mode", "linear");
  if (n.failed())
    return;
  const unsigned axis = n.axis(n.intAttr("axis", -2), cache);
  if (n.failed())
    return;
  if (axis == 0 || updates->type.rank() != cache->type.rank())
    return (void)n.invalid("the axis is not that of the batch, and the update has all axes");
  if (mode != "linear" && mode != "circular")
    return (void)n.invalid("mode '" + mode + "' is neither linear nor circular");
  Value *at = n.iota(n.sizeOf(updates, axis));
  for (unsigned d = 0; d < axis; ++d)
    at = n.unsqueeze(at, {0});
  if (places) {
    Value *first = n.cast(places, DType::I64);
    for (unsigned d = 1; d <= axis; ++d)
      first = n.unsqueeze(first, {int64_t(d)});
    at = n.add(at, first);
  }
  if (mode == "circular")
    at = n.emit(OpCode::Mod, {at, n.sizeOf(cache, axis)});
  n.out(n.emit(OpCode::ScatterND, {cache, tuplesOf(n, updates, axis + 1, axis, at), updates}));
}

/// The k largest, or least, elements of an axis and where they were, the first of equal ones first.
/// An element's place is the number of those before it in that order:
///   place_i = sum_j [x_j > x_i or (x_j = x_i and j < i)]
void topK(NodeLowering &n) {
  Value *x = n.in(0);
  auto k = n.requiredConstants(1);
  if (n.failed())
    return;
  const unsigned axis = n.axis(n.intAttr("axis", -1), x), last = x->type.rank() - 1;
  const auto size = NodeLowering::staticDim(x, axis);
  constexpr int64_t most = 1024; // its square is what is compared
  if (n.failed())
    return;
  if (!size || *size > most)
    return (void)n.unsupported("of an axis of " + x->type.shape[axis].str() + " elements: up to " +
                               llvm::Twine(most) + " are supported");
  if (k->size() != 1 || k->front() < 0 || k->front() > *size)
    return (void)n.invalid("K has to be one number from 0 to the size of the axis");
  std::vector<int64_t> swapped(last + 1);
  std::iota(swapped.begin(), swapped.end(), 0);
  std::swap(swapped[axis], swapped[last]);
  auto swap = [&](Value *v) { return axis == last ? v : n.transpose(v, swapped); };
  const int64_t behind = last + 1;

  Value *rows = swap(x), *at = n.iota(n.ints({*size}));
  Value *mine = n.unsqueeze(rows, {behind}), *others = n.unsqueeze(rows, {behind - 1});
  const OpCode ahead = n.intAttr("largest", 1) ? OpCode::Greater : OpCode::Less;
  Value *isAhead = n.emit(ahead, {others, mine}), *isEqual = n.equal(others, mine);
  Value *isEarlier = n.emit(OpCode::Less, {n.unsqueeze(at, {0}), n.unsqueeze(at, {1})});
  Value *counts = n.emit(OpCode::Or, {isAhead, n.emit(OpCode::And, {isEqual, isEarlier})});
  Value *place = n.reduce(OpCode::ReduceSum, n.cast(counts, DType::I64), {behind}, false);

  Value *wanted = n.unsqueeze(n.iota(n.ints({k->front()})), {1});
  Value *isThere = n.equal(n.unsqueeze(place, {behind - 1}), wanted);
  auto taken = [&](Value *of) {
    Value *one = n.where(isThere, of, n.scalarLike(0, of));
    return swap(n.reduce(OpCode::ReduceSum, one, {behind}, false));
  };
  if (n.wants(0))
    n.out(0, taken(others));
  if (n.wants(1))
    n.out(1, taken(at));
}

void oneHot(NodeLowering &n) {
  int64_t axis = n.intAttr("axis", -1);
  n.out(n.emit(OpCode::OneHot, {n.in(0), n.in(1), n.in(2)}, {{"axis", axis}}));
}

} // namespace gpt2c::onnxops

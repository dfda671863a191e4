#include "frontend/ops/AttentionParts.h"

#include <limits>

namespace gpt2c::onnxops {

Value *headsOfTokens(NodeLowering &n, Value *x, int64_t heads) {
  if (n.failed())
    return nullptr;
  if (x->type.rank() != 3)
    return n.invalid("queries, keys or values of rank " + llvm::Twine(x->type.rank()) +
                     " where [batch, tokens, width] is expected");
  auto width = NodeLowering::staticDim(x, 2);
  if (heads < 1 || (width && *width % heads != 0))
    return n.invalid("a width of " + x->type.shape[2].str() + " does not split into " +
                     llvm::Twine(heads) + " heads");
  return n.reshape(x, {0, 0, heads, width ? *width / heads : -1});
}

Value *splitHeads(NodeLowering &n, Value *x, int64_t heads) {
  return n.transpose(headsOfTokens(n, x, heads), {0, 2, 1, 3});
}

Value *joinHeads(NodeLowering &n, Value *x) {
  auto heads = NodeLowering::staticDim(x, 1), size = NodeLowering::staticDim(x, 3);
  return n.reshape(n.transpose(x, {0, 2, 1, 3}), {0, 0, heads && size ? *heads * *size : -1});
}

Value *repeatHeads(NodeLowering &n, Value *x, int64_t heads) {
  if (n.failed())
    return nullptr;
  auto shared = NodeLowering::staticDim(x, 1), size = NodeLowering::staticDim(x, 3);
  if (!shared || !size)
    return n.unsupported("the number of key heads or the head size is not known");
  if (*shared == heads)
    return x;
  if (*shared == 0 || heads % *shared != 0)
    return n.invalid(llvm::Twine(heads) + " query heads cannot share " + llvm::Twine(*shared) +
                     " key heads");
  Value *tiled = n.emit(OpCode::Tile, {n.unsqueeze(x, {2})},
                        {{"repeats", toDims({1, 1, heads / *shared, 1, 1})}});
  return n.reshape(tiled, {0, heads, -1, *size});
}

Value *softcap(NodeLowering &n, Value *x, double bound) {
  if (bound == 0)
    return x;
  Value *limit = n.scalarLike(bound, x);
  return n.mul(n.emit(OpCode::Tanh, {n.div(x, limit)}), limit);
}

Value *hideScores(NodeLowering &n, Value *scores, Value *visible) {
  return n.where(visible, scores, n.scalarLike(-std::numeric_limits<double>::infinity(), scores));
}

Value *softmaxOrZeros(NodeLowering &n, Value *scores) {
  Value *p = n.softmax(scores);
  Value *empty = n.emit(OpCode::IsNaN, {p});
  return n.where(empty, n.scalarLike(0, p), p);
}

static Value *everySecond(NodeLowering &n, Value *x, int64_t first, int64_t end) {
  return n.emit(
      OpCode::Slice, {x},
      {{"starts", Dims{first}}, {"ends", Dims{end}}, {"axes", Dims{-1}}, {"steps", Dims{2}}});
}

Value *rotate(NodeLowering &n, Value *x, Value *cos, Value *sin, int64_t r, bool interleaved) {
  auto size = NodeLowering::staticDim(x, -1);
  if (n.failed())
    return nullptr;
  if (!size)
    return n.unsupported("the head size is not known");
  if (r < 1 || 2 * r > *size)
    return n.invalid("tables of " + llvm::Twine(r) + " pairs for heads of " + llvm::Twine(*size));
  Value *x1 = interleaved ? everySecond(n, x, 0, 2 * r) : n.slice(x, -1, 0, r);
  Value *x2 = interleaved ? everySecond(n, x, 1, 2 * r) : n.slice(x, -1, r, 2 * r);
  Value *left = n.mul(x1, cos), *right = n.mul(x2, sin);
  Value *real = n.sub(left, right);
  left = n.mul(x1, sin), right = n.mul(x2, cos);
  Value *imaginary = n.add(left, right);
  llvm::SmallVector<Value *, 3> parts{real, imaginary};
  if (interleaved) {
    for (Value *&part : parts)
      part = n.unsqueeze(part, {-1});
    std::vector<int64_t> shape(x ? x->type.rank() : 0, 0);
    shape.back() = 2 * r;
    Value *pairs = n.reshape(n.concat(parts, -1), shape);
    parts.assign({pairs});
  }
  if (2 * r < *size)
    parts.push_back(n.slice(x, -1, 2 * r, *size));
  return parts.size() == 1 ? parts[0] : n.concat(parts, -1);
}

Value *tableRows(NodeLowering &n, Value *table, Value *ids) {
  return n.emit(OpCode::Gather, {table, ids}, {{"axis", int64_t(0)}});
}

} // namespace gpt2c::onnxops
